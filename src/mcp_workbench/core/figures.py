"""Figures of a running workbench, as `/metrics` and `top` show them."""

import msgspec

from mcp_workbench.core.call_stats import StatsSnapshot
from mcp_workbench.core.spec import ServerAddress


class ServerFigures(msgspec.Struct, frozen=True, rename="camel"):
    """One server of the configuration."""

    toolbox: str
    server: str
    state: str  # as in `ServerHealth`
    connections: int = 0
    starts: int = 0
    restarts: int = 0  # starts after a connection that had failed
    failures: int = 0  # in a row
    in_flight: int = 0  # calls that it has not answered
    waiting: int = 0  # calls that wait until it is ready
    processes: int = 0
    memory: int = 0  # bytes resident, with all that its processes have started
    tools: int = 0  # that a model can see; of a server that is or was connected
    tokens: int = 0  # of these, listed directly: an estimate
    groups: tuple[int, ...] = ()  # its process groups

    @property
    def address(self) -> ServerAddress:
        return ServerAddress(self.toolbox, self.server)


class Hosts(msgspec.Struct, frozen=True, rename="camel"):
    """Who is connected to us."""

    sessions: int = 0  # of legacy hosts over HTTP
    joined: int = 0  # hosts and commands that share the workbench in the background
    http_connections: int = 0


class RequestTokens(msgspec.Struct, frozen=True, rename="camel"):
    """What a model reads in every request: an estimate."""

    direct: int = 0  # with each tool of each server listed
    shown: int = 0  # with the tools of ours

    @property
    def saved(self) -> int:
        return max(self.direct - self.shown, 0)


class Figures(msgspec.Struct, frozen=True, rename="camel"):
    """All figures at one moment."""

    version: str
    pid: int
    mode: str
    seconds: float  # since the start
    cpu: float  # seconds
    servers: tuple[ServerFigures, ...]
    hosts: Hosts
    stats: StatsSnapshot
    tokens: RequestTokens = RequestTokens()
    memory: int = 0  # bytes resident, of this process; 0: the system does not report it
    descriptors: int = 0
