"""The state folder: what outlives this process, private to its user, never needed for a call.

`state_home(environ)` returns its path and touches nothing. `private_folder(home, "catalogues")` makes a
folder in it, mode 0700. `write_whole(path, data)` replaces a file in one step, mode 0600, so that no
reader sees half of it. `read_own(path, most)` reads a file only if it belongs to this user. All but the
first raise OSError.

Every joined host loads this module, so it imports next to nothing.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # importing it from `typing` costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "MCP_WORKBENCH_HOME"
NAME = ".mcp-workbench"
BUNDLES = "bundles"  # the folder of unpacked bundles in it
CREDENTIALS = "credentials"  # that of sign-ins
TASKS = "tasks"  # that of the key of tasks' ids
SCRIPTS = "scripts"  # that of the key of suspended scripts, and of those that went on
SECRETS = "secrets"  # that of the encrypted store

PRIVATE = 0o600

_OTHERS_WRITE = 0o022
_OTHERS = 0o077
# Follow no link, don't block at a pipe; Windows has neither.
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class NotPrivate(OSError):
    """Another user could read or replace our files there."""


def state_home(environ: Mapping[str, str]) -> str:
    """Returns the path of the state folder; empty if no variable gives one."""
    given = environ.get(VARIABLE)
    if given:
        return os.path.abspath(given)  # noqa: PTH100 - text in, text out
    home = environ.get("HOME") or (environ.get("USERPROFILE") if os.name == "nt" else None)
    return os.path.join(home, NAME) if home else ""  # noqa: PTH118


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Has this user ever signed in to a server?"""
    home = state_home(environ)
    return bool(home) and os.path.isdir(os.path.join(home, CREDENTIALS))  # noqa: PTH112, PTH118


def private_folder(home: str, *names: str) -> str:
    """Returns the path of a folder in the state folder, and creates it if needed. Raises OSError."""
    if not home:
        raise FileNotFoundError(f"neither ${VARIABLE} nor $HOME is set")
    path = home
    _make(path)
    # The home itself may be a link of its owner; what is in it belongs to this program.
    _require(path, os.stat(path), _OTHERS_WRITE)  # noqa: PTH116
    for name in names:
        path = os.path.join(path, name)  # noqa: PTH118
        _make(path)
        _require(path, os.lstat(path), _OTHERS)
    return path


def require_private(home: str, name: str) -> None:
    """Raises NotPrivate if this folder of the state folder exists and another user could change it."""
    path = os.path.join(home, name)  # noqa: PTH118
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
    """Returns the bytes of a file of this user. Raises OSError."""
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


def write_whole(path: str, data: bytes, *, replace: bool = True, durable: bool = False) -> None:
    """Writes a file in one step; without `replace`, an existing one stays. See `write_new`."""
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        write_new(temporary, data, durable=durable)
        if replace:
            os.replace(temporary, path)  # noqa: PTH105
        else:
            _place(temporary, path)
    finally:
        _remove(temporary)


def write_new(path: str, data: bytes, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Writes a file that is not there yet; if `durable`, it survives a crash of the system afterwards."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL, PRIVATE)
    with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123
        view = memoryview(data)
        while view:
            view = view[file.write(view) or 0 :]
        if durable:
            os.fsync(descriptor)
        if mode != PRIVATE and os.name == "posix":
            # Not by its name: whoever owns the folder may have put a link there.
            os.fchmod(descriptor, mode)


def _place(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was first
    except OSError:  # a file system without links
        if not os.path.exists(path):  # noqa: PTH110
            os.replace(temporary, path)  # noqa: PTH105


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return
