"""Where the background workbench of a configuration file keeps its socket, its lock and its log."""

from __future__ import annotations

import os
from binascii import crc32

from mcp_workbench.config.state_home import state_home

# `config/load.py` has the same two names, and loads more than a joiner needs; a test compares them.
CONFIG_FILE = "workbench-config.json"
CONFIG_VARIABLE = "WORKBENCH_CONFIG"
ROOM = "daemon"  # in the state folder
LONGEST_SOCKET = 100  # bytes of a socket's path; systems take from 104 on


class Place:
    """All that belongs to one configuration file; its real path decides."""

    def __init__(self, config: str, home: str, name: str, *, named: bool = True) -> None:
        self.config = config
        self.named = named  # by the user; False where it was met in the current folder
        self.home = home  # the state folder; empty where nothing says which
        self.name = name

    @property
    def folder(self) -> str:
        return os.path.join(self.home, ROOM)  # noqa: PTH118 - `pathlib` is slow

    def make(self) -> None:
        """See that the folder is there, ours, and closed to others. Raises OSError."""
        from mcp_workbench.config.state_folder import private_folder  # only who starts one

        private_folder(self.home, ROOM)

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, f"{self.name}.sock")  # noqa: PTH118

    @property
    def lock(self) -> str:
        return os.path.join(self.folder, f"{self.name}.lock")  # noqa: PTH118

    @property
    def log(self) -> str:
        return os.path.join(self.folder, f"{self.name}.log")  # noqa: PTH118


def place_of(option: str | None) -> Place | None:
    """The place of the file that `--config`, the variable or the folder names; None without a file."""
    given = option if option is not None else os.environ.get(CONFIG_VARIABLE) or None
    config = os.path.realpath(CONFIG_FILE if given is None else given)
    if not os.path.isfile(config):  # noqa: PTH113
        return None
    path = os.fsencode(config)
    # Two sums, forwards and backwards: whoever comes says the whole path, which is compared.
    name = f"{crc32(path):08x}{crc32(path[::-1]):08x}"
    return Place(config, state_home(os.environ), name, named=given is not None)


def socket_address(path: str) -> tuple[str, int]:
    """What to bind or connect to, and a descriptor to close afterwards, or -1.

    A path that is too long for a socket is reached through its open folder.
    """
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path, -1
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_RDONLY)
    return f"/proc/self/fd/{fd}/{name}", fd  # only Linux has this; elsewhere nobody is found there
