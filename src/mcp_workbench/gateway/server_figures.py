"""Figures of the servers, as the gateway knows them without asking: state, connections, calls, tools."""

from collections import defaultdict

from mcp_workbench.core.catalogue import OpenedServer
from mcp_workbench.core.figures import ServerFigures
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.reports import opened_server, process_group


def server_figures(gateway: Gateway) -> tuple[ServerFigures, ...]:
    """All servers, without memory and tokens."""
    pool = gateway.pool
    connections: defaultdict[ServerAddress, list[Connection]] = defaultdict(list)
    for connection in pool.shared.values():
        connections[connection.spec.address].append(connection)
    figures: list[ServerFigures] = []
    for health in gateway.health():
        address = health.address
        ready = [connection for connection in connections[address] if connection.usable]
        figures.append(
            ServerFigures(
                address.toolbox,
                address.server,
                "ready" if health.state == "idle" and ready else health.state,
                len(ready),
                pool.starts[address],
                pool.restarts[address],
                health.failures,
                sum(connection.conversation.pending.count for connection in ready),
                sum(connection.awaited for connection in connections[address]),
                groups=tuple(filter(None, map(process_group, ready))),
            )
        )
    return tuple(figures)


def listed_servers(gateway: Gateway) -> list[OpenedServer]:
    """The tools of the servers that are connected, or were: what is held in memory."""
    listed: list[OpenedServer] = []
    for box in gateway.snapshot.toolboxes.values():
        for spec in box.servers.values():
            connection = gateway.pool.last(spec)
            server = None if connection is None else opened_server(spec, connection)
            if server is None and (known := gateway.pool.cache.received(spec.key)) is not None:
                server = known.opened(spec, known.at, "")
            if server is not None:
                listed.append(server)
    return listed
