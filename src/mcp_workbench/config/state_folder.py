"""The folder in which we keep what outlives us: private to its user, and never needed for a call.

`state_home(environ)` says where it is and touches nothing. `private_folder(home, "catalogues")` makes
a room in it, mode 0700, or raises OSError. `write_whole(path, data)` replaces a file in one step, mode
0600, so that no reader ever sees half of it. `read_own(path, most)` reads a file only if it is ours.
"""

from __future__ import annotations

import os
import stat

from mcp_workbench.config.state_home import NAME, VARIABLE, state_home

__all__ = [
    "NAME",
    "VARIABLE",
    "NotPrivate",
    "private_folder",
    "read_own",
    "require_private",
    "state_home",
    "write_whole",
]

_OTHERS_WRITE = 0o022
_OTHERS = 0o077
# No way through a link, no waiting at a pipe that somebody has put there; Windows knows neither.
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class NotPrivate(OSError):
    """Somebody else could read or exchange what we keep there."""


def private_folder(home: str, *rooms: str) -> str:
    """The path of this room in our home, made if it is not there. Raises OSError where it can't be."""
    if not home:
        raise FileNotFoundError(f"neither ${VARIABLE} nor $HOME is set")
    path = home
    _make(path)
    # The home itself may be a link, which is its owner's affair; what is in it is ours alone.
    _require(path, os.stat(path), _OTHERS_WRITE)  # noqa: PTH116
    for room in rooms:
        path = os.path.join(path, room)  # noqa: PTH118
        _make(path)
        _require(path, os.lstat(path), _OTHERS)
    return path


def require_private(home: str, room: str) -> None:
    """See that what is in this room, if there is one, is ours. Raises NotPrivate otherwise."""
    path = os.path.join(home, room)  # noqa: PTH118
    try:
        _require(home, os.stat(home), _OTHERS_WRITE)  # noqa: PTH116
        _require(path, os.lstat(path), _OTHERS)
    except FileNotFoundError:
        return


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102 - created with the mode, not changed to it after
    except FileExistsError:
        return


def _require(path: str, status: os.stat_result, forbidden: int) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path} is not a folder")
    if os.name != "posix":
        return
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{path} belongs to another user")
    if status.st_mode & forbidden:
        raise NotPrivate(f"{path} is open to other users: chmod 700 {path}")


def read_own(path: str, most: int) -> bytes:
    """A file of ours, whole. Raises OSError, FileNotFoundError among others."""
    descriptor = os.open(path, os.O_RDONLY | _CAREFUL)
    with open(descriptor, "rb") as file:  # noqa: PTH123
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(f"{path} is not a plain file")
        if os.name == "posix" and status.st_uid != os.geteuid():
            raise NotPrivate(f"{path} belongs to another user")
        if status.st_size > most:
            raise OSError(f"{path} has more than {most} bytes")
        return file.read(most)


def write_whole(path: str, data: bytes, *, replace: bool = True) -> None:
    """Put a file there in one step; without `replace`, one that is there already stays."""
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123
            view = memoryview(data)
            while view:
                view = view[file.write(view) or 0 :]
        if replace:
            os.replace(temporary, path)  # noqa: PTH105
        else:
            _place(temporary, path)
    except OSError:
        _remove(temporary)
        raise


def _place(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was quicker
    except OSError:  # a file system without links
        if not os.path.exists(path):  # noqa: PTH110
            os.replace(temporary, path)  # noqa: PTH105
            return
    _remove(temporary)


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return
