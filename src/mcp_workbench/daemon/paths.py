"""Files of a daemon: the socket, the lock and the log that belong to one configuration file."""

from __future__ import annotations

import os
from binascii import crc32
from contextlib import contextmanager, suppress

from mcp_workbench.config.state_home import state_home

TYPE_CHECKING = False  # `typing` takes four milliseconds, which an attached process does not need
if TYPE_CHECKING:
    from collections.abc import Generator

# `config/load.py` has the same two names, but loads more than an attached process needs; a test
# compares them.
CONFIG_FILE = "workbench-config.json"
CONFIG_VARIABLE = "WORKBENCH_CONFIG"
FOLDER = "daemon"  # in the state folder
ROTATED = ".1"  # suffix of the older of two log files
OWN_SOURCE = "workbench"  # the source of log lines that are no server's
LONGEST_SOCKET = 100  # bytes of a socket's path; systems accept at least 104


class DaemonPaths:
    """Paths of the daemon that serves one configuration file, identified by its real path."""

    def __init__(self, config: str, home: str, name: str, *, named: bool = True) -> None:
        self.config = config
        self.named = named  # by the user; False if the file was found
        self.home = home  # the state folder; empty if neither variable that decides it is set
        self.name = name

    @property
    def folder(self) -> str:
        return os.path.join(self.home, FOLDER)  # noqa: PTH118 - `pathlib` is slow

    def create_folder(self) -> None:
        """Create the folder, owned by this user and closed to others. Raises OSError."""
        from mcp_workbench.config.state_home import private_folder

        private_folder(self.home, FOLDER)

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, f"{self.name}.sock")  # noqa: PTH118

    @property
    def lock(self) -> str:
        return os.path.join(self.folder, f"{self.name}.lock")  # noqa: PTH118

    @property
    def log(self) -> str:
        return os.path.join(self.folder, f"{self.name}.log")  # noqa: PTH118


def daemon_paths(option: str | None) -> DaemonPaths | None:
    """The paths for the file that `--config` or the variable names, or that is found; None without one."""
    given = option if option is not None else os.environ.get(CONFIG_VARIABLE) or None
    config = os.path.realpath(_found() if given is None else given)
    if not os.path.isfile(config):  # noqa: PTH113
        return None
    path = os.fsencode(config)
    # Two checksums, forwards and backwards, may collide: clients send the whole path, which is compared.
    name = f"{crc32(path):08x}{crc32(path[::-1]):08x}"
    return DaemonPaths(config, state_home(os.environ), name, named=given is not None)


def _found() -> str:
    """The file in the current folder if there is one, else the user's own; as `find_config` chooses."""
    if os.path.lexists(CONFIG_FILE):
        return CONFIG_FILE
    from mcp_workbench.config.user_file import user_config  # hosts mostly name the file

    return user_config(os.environ) or CONFIG_FILE


def socket_address(path: str) -> tuple[str, int]:
    """The address to bind or connect to, and a descriptor to close afterwards, or -1.

    A path that is too long for a socket is reached through a descriptor of its folder.
    """
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path, -1
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_RDONLY)
    return f"/proc/self/fd/{fd}/{name}", fd  # Linux only; elsewhere connecting fails


class AlreadyRunning(Exception):
    """Another process holds the lock."""


@contextmanager
def daemon_lock(paths: DaemonPaths) -> Generator[None]:
    """Hold the lock for the length of the block, or raise AlreadyRunning. A crash releases it."""
    import fcntl  # not on Windows, where nothing calls this

    # Not inherited by child processes: a server that outlives the daemon must not hold it.
    fd = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunning from None
        with suppress(OSError):  # the disk is full: the pid in the file is only informative
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(fd)


def lock_holder(paths: DaemonPaths) -> int:
    """The pid of the process that holds the lock; 0 if none does, -1 if its pid is unknown."""
    import fcntl

    try:
        fd = os.open(paths.lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        pid = os.pread(fd, 20, 0).strip()
        return int(pid) if pid.isdigit() else -1
    finally:
        os.close(fd)
    return 0
