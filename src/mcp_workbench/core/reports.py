"""What can be said about toolboxes and servers that were looked at."""

from typing import Literal

import msgspec

from mcp_workbench.core.catalogue import Definition, ToolInfo, Unavailable
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ToolboxSpec


class OpenedServer(msgspec.Struct, frozen=True):
    """A server of an opened toolbox with the tools that its filter shows."""

    address: ServerAddress
    tools: tuple[Definition, ...]
    modern: bool = False


class OpenedToolbox(msgspec.Struct, frozen=True):
    """A toolbox as far as it could be opened."""

    spec: ToolboxSpec
    servers: tuple[OpenedServer, ...]
    unavailable: tuple[Unavailable, ...]
    warnings: tuple[str, ...] = ()  # about the configuration file


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
