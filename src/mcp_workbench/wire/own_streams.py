"""Our own standard streams: taken for the protocol alone, and whatever they are, pipe or not."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress

from mcp_workbench.wire.stdio import READ_BYTES, PipeWriter

log = logging.getLogger(__name__)


class FileWriter:
    """Frames into something that is no pipe: a file, a terminal, the null device."""

    backlog = 0

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        self._fd = fd
        self._lost = lost

    def send(self, frame: bytes, about: bytes = b"") -> None:
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:  # a full disk
            log.error("what a host is told can't be written: %s", error.strerror)  # noqa: TRY400
            self._lost()

    def on_pressure(self, act: Callable[[bool], None]) -> None:
        """Writing waits here, so nothing piles up."""

    async def flushed(self, seconds: float) -> None:
        """What was sent has left already."""
        os.close(self._fd)


def is_pipe(fd: int) -> bool:
    """Only pipes and sockets go to the loop: uvloop aborts on a file, and a terminal is shared."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def open_writer(fd: int, lost: Callable[[], None]) -> PipeWriter | FileWriter:
    """A channel into `fd`. `lost` is called when nobody reads any more."""
    return PipeWriter(fd, lost) if is_pipe(fd) else FileWriter(fd, lost)


def pump_file(fd: int, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
    """Read something that is no pipe in a thread, which is left behind when the program ends."""
    loop = asyncio.get_running_loop()

    def pump() -> None:
        with suppress(RuntimeError):  # the loop has closed meanwhile
            while data := _read(fd):
                loop.call_soon_threadsafe(received, data)
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=pump, name="standard input", daemon=True).start()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except OSError:  # a terminal that was hung up, a folder
        return b""


def claim_standard_streams() -> tuple[int, int]:
    """Take stdin and stdout for ourselves: a stray print goes to stderr, a child sees no input."""
    own_in, own_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a stderr
        os.dup2(0, 1)
    return own_in, own_out
