"""Pipes: readers that hand on what arrives, writers that never wait."""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

PIPE_BYTES = 1 << 18  # what pipes are grown to: large results need fewer turns
READ_BYTES = 1 << 18
PRESSURE_BYTES = 1 << 20  # waiting for a slow reader before those who feed it are held
F_SETPIPE_SZ = (
    1031  # Linux; `fcntl` names it from Python 3.10 on, but only where the headers had it
)


class Channel(Protocol):
    """Takes frames. `send` never waits; what can't leave yet is the backlog."""

    @property
    def backlog(self) -> int: ...
    def send(self, frame: bytes) -> None: ...


class PipeReader(asyncio.Protocol):
    """Hands on what arrives, and says when it ends."""

    def __init__(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._ended = ended
        # The loop calls the receiver itself: one step less per chunk.
        self.data_received = received  # pyright: ignore[reportAttributeAccessIssue]

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


class PipeWriter(asyncio.BaseProtocol):
    """Frames into a pipe. While the pipe is full they wait here, not yet written."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: deque[bytes] = deque()
        self._paused = True  # until the transport is there
        self._closing = False
        self._lost = asyncio.Event()
        self._pressure: Callable[[bool], None] | None = None
        self._pressing = False
        self.backlog = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass
        self.resume_writing()

    def send(self, frame: bytes) -> None:
        if self._paused or self._transport is None:
            self._waiting.append(frame)
            self.backlog += len(frame)
            self._press(high=self.backlog > PRESSURE_BYTES)
        else:
            self._transport.write(frame)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        while self._waiting and not self._paused and self._transport is not None:
            frame = self._waiting.popleft()
            self.backlog -= len(frame)
            self._transport.write(frame)
        if not self._waiting:
            self._press(high=False)
            if self._closing:
                self.close()

    def on_pressure(self, act: Callable[[bool], None]) -> None:
        """Be told when the reader falls far behind, and when it has caught up."""
        self._pressure = act

    def _press(self, *, high: bool) -> None:
        if self._pressure is not None and high != self._pressing:
            self._pressing = high
            self._pressure(high)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._paused = True
        self._lost.set()

    async def flushed(self, seconds: float) -> None:
        """Close, once everything has left or the time is up."""
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        self.abort()

    def close(self) -> None:
        """Let everything leave, then close the pipe."""
        self._closing = True
        if self._transport is not None and not self._waiting:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class FileWriter:
    """Frames into something that is no pipe: a file, a terminal, the null device."""

    backlog = 0

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            view = view[os.write(self._fd, view) :]

    def on_pressure(self, act: Callable[[bool], None]) -> None:
        """Writing waits here, so nothing piles up."""

    async def flushed(self, seconds: float) -> None:
        """What was sent has left already."""
        os.close(self._fd)


def grow_pipe(fd: int) -> None:
    """Ask for a larger pipe; a system that can't, or won't, keeps its own size."""
    try:
        import fcntl  # not on Windows

        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, OSError):
        return


def is_pipe(fd: int) -> bool:
    """Only pipes and sockets go to the loop: uvloop aborts on a file, and a terminal is shared."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def open_writer(fd: int) -> PipeWriter | FileWriter:
    if not is_pipe(fd):
        return FileWriter(fd)
    grow_pipe(fd)
    loop = asyncio.get_running_loop()
    _, writer = await loop.connect_write_pipe(PipeWriter, os.fdopen(fd, "wb", 0))
    return writer


async def open_reader(
    fd: int, received: Callable[[bytes], None], ended: Callable[[], None]
) -> asyncio.ReadTransport:
    """Start reading a pipe. Data may arrive before this returns: have everything else ready."""
    grow_pipe(fd)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: PipeReader(received, ended), os.fdopen(fd, "rb", 0)
    )
    return transport


async def pump_file(fd: int, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
    """Read something that is no pipe in a thread, chunk by chunk, until it ends."""
    loop = asyncio.get_running_loop()
    while data := await loop.run_in_executor(None, os.read, fd, READ_BYTES):
        received(data)
    ended()


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
