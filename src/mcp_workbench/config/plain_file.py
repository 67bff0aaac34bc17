"""A file that others wrote, read without waiting and without end: a plain one, up to a bound."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # whoever opens a pipe waits for a writer otherwise


class NotPlain(OSError):
    """A pipe or a device: nobody knows when it would end."""


class TooLarge(OSError):
    """There is more than was wanted."""


def read_plain(path: str | Path, most: int, *, pipes: bool = False) -> bytes:
    """The whole of a plain file, links followed; of a pipe where one is wanted. Raises OSError."""
    with open(path, "rb", opener=None if pipes else _opened) as stream:
        if not pipes and not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise NotPlain(errno.EINVAL, "it is no plain file", str(path))
        raw = stream.read(most + 1)
    if len(raw) > most:
        raise TooLarge(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return raw


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | _AT_ONCE)
