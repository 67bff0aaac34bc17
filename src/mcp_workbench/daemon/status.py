"""What `status` tells: the workbench, its servers, its hosts, its memory."""

import msgspec
from msgspec import UNSET, UnsetType


class HostLine(msgspec.Struct, frozen=True, rename="camel"):
    """One joined host."""

    pid: int  # of its joiner
    seconds: float
    revision: str = ""
    toolboxes: tuple[str, ...] = ()  # none named: all
    calls_in_flight: int = 0
    memory: int | UnsetType = UNSET  # bytes resident; left out where the system does not tell


class ServerLine(msgspec.Struct, frozen=True, rename="camel"):
    """One server of the configuration."""

    toolbox: str
    server: str
    state: str
    connections: int = 0  # one for all hosts, or one for each
    pids: tuple[int, ...] = ()  # of those that we have started
    processes: int | UnsetType = UNSET  # these, and all that they have started
    memory: int | UnsetType = UNSET
    calls_in_flight: int = 0
    calls: int = 0  # requests since it was last connected
    failures: int = 0
    next_try: float = 0.0
    reason: str = ""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `status --json` prints."""

    running: bool
    config: str
    version: str = ""
    pid: int = 0
    seconds: float = 0.0
    url: str = ""
    memory: int | UnsetType = UNSET  # of itself alone
    calls_in_flight: int = 0
    servers: tuple[ServerLine, ...] = ()
    hosts: tuple[HostLine, ...] = ()
    log: str = ""
    log_trouble: str = ""
    is_ending: bool = False
    warnings: tuple[str, ...] = ()
