"""A file that others wrote, read without waiting and without end: a plain one, up to a bound.

A pipe that somebody has named, such as `<(command)` of a shell, is read as well. Its writer has a
while for all of it, after which nobody waits for it any more.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_workbench.timing import deadline

if TYPE_CHECKING:
    from pathlib import Path

PIPE_WAIT = deadline(10.0)  # seconds for a whole file through a pipe
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # whoever opens a pipe waits for a writer otherwise
_CHUNK = 1 << 16


class NotPlain(OSError):
    """A pipe or a device: nobody knows when it would end."""


class TooLarge(OSError):
    """There is more than was wanted."""


class TooSlow(OSError):
    """Nobody has written the whole of it."""


def read_plain(path: str | Path, most: int, *, pipes: bool = False) -> bytes:
    """The whole of a plain file, links followed; of a pipe where one is wanted. Raises OSError."""
    with open(path, "rb", buffering=0, opener=at_once) as stream:
        status = os.fstat(stream.fileno())
        if not pipes and not stat.S_ISREG(status.st_mode):
            raise NotPlain(errno.EINVAL, "it is no plain file", str(path))
        return read_open(stream.fileno(), status, most)


def at_once(path: str, flags: int) -> int:
    """An opener that waits for nobody."""
    return os.open(path, flags | _AT_ONCE)


def read_open(fd: int, status: os.stat_result, most: int) -> bytes:
    """All that is in this open file. Raises TooLarge, and TooSlow where it is a pipe."""
    wait = None if stat.S_ISREG(status.st_mode) or os.name != "posix" else _waiter(fd)
    raw = bytearray()
    while len(raw) <= most:
        if wait is not None:
            wait()
        try:
            data = os.read(fd, min(_CHUNK, most + 1 - len(raw)))
        except BlockingIOError:  # another reader was quicker
            continue
        if not data:
            return bytes(raw)
        raw += data
    raise TooLarge(errno.EFBIG, f"it is larger than {most >> 20} MiB")


def _waiter(fd: int) -> Callable[[], None]:
    """What waits until there is something to read; all such waits together are bounded."""
    from select import poll  # only where there is a pipe
    from time import monotonic

    until = monotonic() + PIPE_WAIT
    ready = poll()
    ready.register(fd)

    def wait() -> None:
        if not ready.poll(max(until - monotonic(), 0) * 1000):
            raise TooSlow(errno.ETIMEDOUT, f"nobody has written the whole of it in {PIPE_WAIT:g} s")

    return wait
