"""What connections have to say, put together for whoever opens a toolbox or looks at a server."""

from __future__ import annotations

import time

from mcp_workbench.core.catalogue import (
    OpenedServer,
    OpenedToolbox,
    ServerReport,
    Unavailable,
    tool_info,
)
from mcp_workbench.core.errors import ServerUnavailable, WorkbenchError, not_connected
from mcp_workbench.core.spec import ServerSpec, ToolboxSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.states import Closed, Ready


def opened(
    toolbox: ToolboxSpec,
    begun: list[tuple[ServerSpec, Connection]],
    warnings: tuple[str, ...] = (),
) -> OpenedToolbox:
    """A toolbox as far as its servers could be reached. Raises where none could."""
    servers: list[OpenedServer] = []
    unavailable: list[Unavailable] = []
    for spec, connection in begun:
        if connection.usable:
            shown = connection.visible(spec.tools)
            tools = tuple(connection.catalogue.tools[tool] for tool in shown)
            servers.append(OpenedServer(spec.address, tools, connection.modern))
        else:
            unavailable.append(Unavailable(spec.address.server, _why_not(connection)))
    if unavailable and not servers:
        raise _none_reached(toolbox.name, unavailable)
    return OpenedToolbox(toolbox, tuple(servers), tuple(unavailable), warnings)


def _why_not(connection: Connection) -> str:
    state = connection.state
    if isinstance(state, Closed):
        return state.reason
    if connection.retired:
        return connection.ending
    since = getattr(state, "since", time.monotonic())
    return f"still starting ({time.monotonic() - since:.0f} s)"


def _none_reached(toolbox: str, unavailable: list[Unavailable]) -> WorkbenchError:
    errors = [not_connected(u.server, toolbox, u.reason) for u in unavailable]
    return ServerUnavailable(
        "connect_failed",
        "\n".join(error.message for error in errors),
        reason="; ".join(u.reason for u in unavailable),
    )


def surveyed(connection: Connection, spec: ServerSpec, seconds: float) -> ServerReport:
    """A server that takes calls, looked at closely."""
    state = connection.state
    agreed = state.agreed if isinstance(state, Ready) else None
    definitions = connection.catalogue.tools
    shown = connection.visible(spec.tools)
    return ServerReport(
        spec.address,
        revision=agreed.revision if agreed else "",
        server_name=agreed.name if agreed else "",
        server_version=agreed.version if agreed else "",
        tools=tuple(tool_info(definitions[name], spec.address) for name in shown),
        hidden=len(definitions) - len(shown),
        idle_filters=tuple(spec.tools.idle(tuple(definitions))),
        complaints=connection.complaints,
        seconds=seconds,
    )
