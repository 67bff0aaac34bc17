"""What can be said about toolboxes and servers that were looked at."""

from typing import Literal

import msgspec

from mcp_workbench.core.catalogue import (
    Definition,
    OpenToolboxResult,
    Stale,
    ToolInfo,
    Unavailable,
    tool_info,
)
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ToolboxSpec

NAMED = 5  # tools of a kind that a sentence names; the others are counted


class OpenedServer(msgspec.Struct, frozen=True):
    """A server of an opened toolbox with the tools that its filter shows."""

    address: ServerAddress
    tools: tuple[Definition, ...]
    modern: bool = False
    connected: bool = True
    stale: Stale | None = None  # these are its tools of some time ago


class OpenedToolbox(msgspec.Struct, frozen=True):
    """A toolbox as far as it could be opened."""

    spec: ToolboxSpec
    servers: tuple[OpenedServer, ...]
    unavailable: tuple[Unavailable, ...]
    warnings: tuple[str, ...] = ()  # about the configuration file, and lists that are out of date

    @property
    def connected(self) -> int:
        return sum(server.connected for server in self.servers)

    @property
    def stale(self) -> tuple[Stale, ...]:
        return tuple(server.stale for server in self.servers if server.stale is not None)


def for_programs(opened: OpenedToolbox) -> OpenToolboxResult:
    """The same with definitions read."""
    tools = (tool_info(tool, s.address) for s in opened.servers for tool in s.tools)
    return OpenToolboxResult(
        toolbox=opened.spec.name,
        description=opened.spec.description,
        servers_connected=opened.connected,
        tools=tuple(tools),
        unavailable=opened.unavailable,
        warnings=opened.warnings,
        stale=opened.stale,
    )


class ToolChange(msgspec.Struct, frozen=True):
    """How a server's tools differ from those that it had."""

    since: float  # when it had those; seconds of the epoch, like every time here
    at: float  # when it had others
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = {"added": self.added, "removed": self.removed, "changed": self.changed}
        told = [f"{word} {_named(names)}" for word, names in kinds.items() if names]
        return "; ".join(told)


class ServerReport(msgspec.Struct, frozen=True):
    """One server looked at closely; `reason` is empty where all is well."""

    address: ServerAddress
    reason: str = ""
    revision: str = ""
    server_name: str = ""
    server_version: str = ""
    tools: tuple[ToolInfo, ...] = ()
    hidden: int = 0
    idle_filters: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    seconds: float = 0.0
    skipped: int = 0  # lines on its stdout that were no messages
    last_skipped: str = ""  # the start of the last one
    age: float | None = (
        None  # seconds since it was so; None is just now, asked from the server itself
    )
    change: ToolChange | None = None  # of its tools, the last one that was noticed
    processes: int = 0  # that ran for it when it was asked


class ServerHealth(msgspec.Struct, frozen=True):
    """How a server does just now, without asking it anything."""

    address: ServerAddress
    # Not started, being started, taking calls, taking them but silent of late, ended, ended so often
    # that it is tried only now and then.
    state: Literal["idle", "starting", "ready", "degraded", "failed", "broken"]
    reason: str = ""
    failures: int = 0  # in a row
    next_try: float = 0.0  # seconds until it may be started again
    calls_in_flight: int = 0
    skipped: int = 0  # lines on its stdout that were no messages
    unasked: int = 0  # answers that nobody waited for: late, doubled, or with a foreign id
    processes: int = 0  # that run for it: one, or one for each host that has its own


def _named(names: tuple[str, ...]) -> str:
    # A name is the server's own text: it must not be able to write lines of its own into a log.
    told = [name if name.isprintable() else ascii(name) for name in names[:NAMED]]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join(told + more)
