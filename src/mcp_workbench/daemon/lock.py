"""One background workbench for one file: whoever holds the lock, and the system knows when it ends."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

from mcp_workbench.daemon.folder import Place


class Taken(Exception):
    """Another process has it."""


@contextmanager
def holding_lock(place: Place) -> Generator[None]:
    """Have the lock for the length of the block, or raise Taken. A crash leaves it free."""
    import fcntl  # not on Windows, where nobody gets here

    # Not inherited by what we start: a server that outlives us must not hold it.
    fd = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Taken from None
        with suppress(OSError):  # a full disk: the number is for people
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(fd)


def holder(place: Place) -> int:
    """The process that has the lock; 0 where nobody has it."""
    import fcntl

    try:
        fd = os.open(place.lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        told = os.pread(fd, 20, 0).strip()
        return int(told) if told.isdigit() else -1  # it has it, and could not say who it is
    finally:
        os.close(fd)
    return 0
