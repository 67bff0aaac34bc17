"""Where the background workbench of a configuration file keeps its socket, its lock and its log."""

from __future__ import annotations

import os
import stat
from binascii import crc32

# `config/load.py` has the same two names, and loads more than a joiner needs; a test compares them.
CONFIG_FILE = "workbench-config.json"
CONFIG_VARIABLE = "WORKBENCH_CONFIG"
HOME_VARIABLE = "MCP_WORKBENCH_HOME"
LONGEST_SOCKET = 100  # bytes of a socket's path; systems take from 104 on


class NotPrivate(OSError):
    """The folder is somebody else's, or open to others."""


class Place:
    """All that belongs to one configuration file; its real path decides."""

    def __init__(self, config: str, folder: str, name: str) -> None:
        self.config = config
        self.folder = folder
        self.name = name

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, f"{self.name}.sock")  # noqa: PTH118 - `pathlib` is slow

    @property
    def lock(self) -> str:
        return os.path.join(self.folder, f"{self.name}.lock")  # noqa: PTH118

    @property
    def log(self) -> str:
        return os.path.join(self.folder, f"{self.name}.log")  # noqa: PTH118


def state_folder() -> str:
    """Where we keep what outlives us; nothing is written next to the user's file."""
    given = os.environ.get(HOME_VARIABLE)
    return given or os.path.join(os.path.expanduser("~"), ".mcp-workbench")  # noqa: PTH111, PTH118


def place_of(option: str | None) -> Place | None:
    """The place of the file that `--config`, the variable or the folder names; None without a file."""
    given = option if option is not None else os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE
    config = os.path.realpath(given)
    if not os.path.isfile(config):  # noqa: PTH113
        return None
    path = os.fsencode(config)
    # Two sums, forwards and backwards: whoever comes says the whole path, which is compared.
    name = f"{crc32(path):08x}{crc32(path[::-1]):08x}"
    folder = os.path.join(os.path.abspath(state_folder()), "daemon")  # noqa: PTH100, PTH118
    return Place(config, folder, name)


def make_private(folder: str) -> None:
    """See that the folder is there, ours, and closed to others."""
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise NotPrivate(0, "it does not belong to this user", folder)
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)  # noqa: PTH101


def socket_address(path: str) -> tuple[str, int]:
    """What to bind or connect to, and a descriptor to close afterwards, or -1.

    A path that is too long for a socket is reached through its open folder.
    """
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path, -1
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_RDONLY)
    return f"/proc/self/fd/{fd}/{name}", fd  # only Linux has this; elsewhere nobody is found there
