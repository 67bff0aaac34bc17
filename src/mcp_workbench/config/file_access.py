"""Files that other programs or users may have written: read within bounds, checked for ownership.

A plain file is read up to a limit. A pipe that the user has named, such as `<(command)` of a shell, is
read too; its writer has `PIPE_WAIT` for all of it.

A file that decides which programs are started must belong to this user or to root, and so must its
folder, in which nobody else may put files. A group may write only if it is the private group of one of
them: Debian gives one to each user. `ownership_warnings` and `is_private` decide; `check_ownership`
asks the system about the file and about what it links to.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from mcp_workbench.timing import deadline

if TYPE_CHECKING:
    from pathlib import Path

PIPE_WAIT = deadline(10.0)  # seconds for a whole file through a pipe
LOCK_WAIT = deadline(10.0)  # seconds for other processes that write the same
LOCK_POLL = 0.02  # seconds between two attempts
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a pipe blocks until there is a writer otherwise
_CHUNK = 1 << 16

FOREIGN_FILE = "WB-CONF-008"
FOREIGN_FOLDER = "WB-CONF-009"
OWNERSHIP_CODES = frozenset({FOREIGN_FILE, FOREIGN_FOLDER})
_ROOT = 0
_NOBODY_KNOWN = -1  # a group member who is not a user here


class NotPlain(OSError):
    """A pipe or a device: it may never end."""


class TooLarge(OSError):
    """The file has more bytes than allowed."""


class TooSlow(OSError):
    """The writer of a pipe did not finish in time."""


def read_plain(path: str | Path, most: int, *, pipes: bool = False) -> bytes:
    """Returns the bytes of a plain file, links followed, or with `pipes` of a pipe. Raises OSError."""
    with open(path, "rb", buffering=0, opener=at_once) as stream:
        status = os.fstat(stream.fileno())
        if not pipes and not stat.S_ISREG(status.st_mode):
            raise NotPlain(errno.EINVAL, "it is no plain file", str(path))
        return read_open(stream.fileno(), status, most)


def at_once(path: str, flags: int) -> int:
    """An opener that never blocks."""
    return os.open(path, flags | _AT_ONCE)


def read_open(fd: int, status: os.stat_result, most: int) -> bytes:
    """Returns the bytes of an open file. Raises TooLarge, and TooSlow for a pipe."""
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
    """Returns a function that waits for data; all its waits together are bounded."""
    from select import poll  # only for a pipe

    until = monotonic() + PIPE_WAIT
    ready = poll()
    ready.register(fd)

    def wait() -> None:
        if not ready.poll(max(until - monotonic(), 0) * 1000):
            raise TooSlow(errno.ETIMEDOUT, f"nobody has written the whole of it in {PIPE_WAIT:g} s")

    return wait


# One process at a time


class LockHeld(TimeoutError):
    """Another process holds the lock: one of ours that is writing, or any that can read the folder."""


@contextmanager
def exclusive(path: str, wait: float | None = None) -> Generator[None]:
    """Hold the lock of a folder or a file; a crash releases it. Windows has none. Raises OSError.

    A folder's needs no file of its own. A process that keeps the lock keeps others waiting for `wait`
    seconds (LOCK_WAIT), not for ever; then LockHeld names it. An event loop tries without waiting: it
    has few threads, and others need them.
    """
    if os.name != "posix":
        yield
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(fd, path, monotonic() + (LOCK_WAIT if wait is None else wait))
        yield
    finally:
        os.close(fd)


@contextmanager
def exclusive_to_write(path: str, wait: float | None = None) -> Generator[None]:
    """The same for a file that is about to be replaced. Whoever can only read its folder can't hold this lock.

    It is a file that nobody else can open, beside the other, for as long as it is held.
    """
    if os.name != "posix":
        yield
        return
    own = f"{path}.writing"
    fd = _own_lock(own, monotonic() + (LOCK_WAIT if wait is None else wait))
    try:
        yield
    finally:
        with suppress(OSError):  # somebody has removed it
            os.unlink(own)  # noqa: PTH108
        os.close(fd)


def _own_lock(own: str, until: float) -> int:
    while True:
        try:
            fd = os.open(own, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except PermissionError:
            if not os.path.lexists(own):
                raise
            raise LockHeld(errno.ETIMEDOUT, f"another user is writing it ({own})") from None
        try:
            _lock(fd, own, until)
            if _is_there(fd, own):
                return fd
        except OSError:
            os.close(fd)
            raise
        os.close(fd)  # who had it has removed it


def _is_there(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _lock(fd: int, path: str, until: float) -> None:
    from fcntl import LOCK_EX, LOCK_NB, flock  # not on Windows
    from time import sleep

    while True:
        try:
            flock(fd, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                message = f"{_holder(fd)} is writing it, or holds the lock of {path}"
                raise LockHeld(errno.ETIMEDOUT, message) from None
        else:
            return
        sleep(LOCK_POLL)


def _holder(fd: int) -> str:
    """Returns which process holds the lock of this file, as far as that is known."""
    about, other = os.fstat(fd), "another process"
    place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as locks:  # noqa: PTH123 - Linux
            rows = [line.split() for line in locks]
        pid = next(row[4] for row in rows if row[1] == "FLOCK" and place in row)
        with open(f"/proc/{int(pid)}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            name = "".join(c for c in file.read(64).strip() if c.isprintable())
        owner = os.stat(f"/proc/{int(pid)}").st_uid  # noqa: PTH116
    except (OSError, ValueError, IndexError, StopIteration):
        return other
    whose = "" if owner == os.getuid() else f" of user {owner}"
    return f"{other} ({name}, pid {pid}{whose})"


# Ownership


class OwnedPath(NamedTuple):
    """Owner and rights of a file or a folder."""

    path: str
    uid: int
    mode: int
    group: str = ""  # that can write to it and has members other than this user and root


class Group(NamedTuple):
    """A group with the user ids of its members."""

    gid: int
    name: str
    members: frozenset[int]


class OwnershipWarning(NamedTuple):
    """Why another user may have written a file."""

    code: str
    message: str


def ownership_warnings(
    file: OwnedPath, folders: list[OwnedPath], me: int
) -> list[OwnershipWarning]:
    """Returns why another user than `me` may have written this file in these folders."""
    warnings: list[OwnershipWarning] = []
    if file.uid not in (_ROOT, me):
        message = f"this file belongs to another user ({file.uid}), who decides what is started"
        warnings.append(OwnershipWarning(FOREIGN_FILE, message))
    elif file.group:
        message = f"the group {file.group} can change this file, and so decide what is started"
        warnings.append(OwnershipWarning(FOREIGN_FILE, message))
    for folder in folders:
        if folder.uid not in (_ROOT, me):
            why = f"belongs to another user ({folder.uid})"
        elif folder.mode & stat.S_IWOTH:  # also where files of others can't be removed, as in /tmp
            why = "is open to everybody"
        elif folder.group:
            why = f"is open to the group {folder.group}"
        else:
            continue
        message = f"its folder {folder.path} {why}: another file could be put there"
        warnings.append(OwnershipWarning(FOREIGN_FOLDER, message))
    return warnings


def is_private(group: Group, user: int, name: str) -> bool:
    """Is it the user's own group, with no other members?"""
    return (group.gid == user or group.name == name) and group.members <= {user}


def check_ownership(path: str, status: os.stat_result) -> list[OwnershipWarning]:
    """Returns the warnings about a file that was opened as `path` and has this status."""
    if os.name != "posix" or not stat.S_ISREG(status.st_mode):
        return []  # the user has named the pipe
    name = os.path.abspath(path)  # noqa: PTH100 - `pathlib` is slow
    folders = dict.fromkeys(
        os.path.dirname(file)  # noqa: PTH120
        for file in (name, os.path.realpath(name))
    )
    me = os.geteuid()
    return ownership_warnings(
        _owned(name, status, me),
        [_owned(folder, os.stat(folder), me) for folder in folders],  # noqa: PTH116
        me,
    )


def ownership_notice(file: str, warnings: list[OwnershipWarning]) -> str:
    """Returns one line for a user who has named such a file; empty without warnings."""
    why = "; ".join(warning.message for warning in warnings)
    return f"mcp-workbench: {file} is used because it was named: {why}" if why else ""


def _owned(path: str, status: os.stat_result, me: int) -> OwnedPath:
    group = _foreign_group(status.st_gid, me) if status.st_mode & stat.S_IWGRP else ""
    return OwnedPath(path, status.st_uid, status.st_mode, group)


def _foreign_group(gid: int, me: int) -> str:
    """Returns the name of a group unless it is the private one of this user or root."""
    import pwd  # few files can be written by a group, and Windows has none

    group = _group(gid)
    for user in (me, _ROOT):
        try:
            name = pwd.getpwuid(user).pw_name
        except KeyError:  # in a container, where users may have numbers only
            name = str(user)
        if is_private(group, user, name):
            return ""
    return group.name


def _group(gid: int) -> Group:
    import grp
    import pwd

    first = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}  # their primary group
    try:
        entry = grp.getgrgid(gid)
    except KeyError:
        return Group(gid, str(gid), frozenset(first))
    return Group(gid, entry.gr_name, frozenset(first | {_user_id(name) for name in entry.gr_mem}))


def _user_id(user: str) -> int:
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return _NOBODY_KNOWN
