"""Figures for `top`, which asks the daemon for them every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.figures import Hosts
from mcp_workbench.daemon import control
from mcp_workbench.server.figures import FiguresReader

if TYPE_CHECKING:
    from mcp_workbench.daemon.control import ControlConnection
    from mcp_workbench.daemon.joined_hosts import HostRegistry
    from mcp_workbench.gateway.workbench import Gateway
    from mcp_workbench.server.http.front import HttpFront
    from mcp_workbench.transport.http.server import HttpServer

LEASE = 60.0  # seconds that calls are measured after somebody has asked


class FiguresReports:
    """Measures calls while somebody asks."""

    def __init__(
        self, gateway: Gateway, registry: HostRegistry, port: tuple[HttpFront, HttpServer] | None
    ) -> None:
        self._gateway = gateway
        self._registry = registry
        self._port = port
        self._reader = FiguresReader(gateway, self._hosts)

    async def send(self, connection: ControlConnection) -> None:
        self._gateway.meter.look_for(LEASE)
        figures = await self._reader.read()
        connection.send(control.REPORT, msgspec.json.encode(figures))

    def _hosts(self) -> Hosts:
        joined = len(self._registry.hosts) + len(self._registry.commands)
        if self._port is None:
            return Hosts(joined=joined)
        front, server = self._port
        return Hosts(front.sessions, joined, len(server.connections))
