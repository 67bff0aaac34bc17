"""Connections that hosts take turns with, one call at a time: then a question can only be that call's."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count

from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.hosts import Host

Key = ServerAddress | tuple[ServerAddress, int]  # shared, or of one host

MOST = 4  # connections to one server for those who take turns


class Leases:
    """Who has which connection, among hosts that come with one request and go."""

    def __init__(self, live: dict[Key, Connection]) -> None:
        self._live = live
        self._groups: dict[tuple[ServerAddress, Hashable], list[Key]] = {}
        self._numbers = count(1)

    def key(self, spec: ServerSpec, host: Host) -> Key:
        """The connection that this host has, or may have from now on."""
        key = host.leases.get(spec.address)
        if key is None:
            key = host.leases[spec.address] = self._free(spec, host)
            if key in self._live:
                self._live[key].lessee = self._live[key].questions.host = host
        return key

    def end(self, host: Host) -> None:
        """The host has gone. A call that waits for a person keeps its connection busy."""
        for key in host.leases.values():
            if key in self._live:
                self._live[key].lessee = None
        host.leases.clear()

    def _free(self, spec: ServerSpec, host: Host) -> Key:
        group = self._groups.setdefault((spec.address, host.key), [])
        group[:] = [key for key in group if key in self._live and not self._live[key].over]
        unleased = [key for key in group if self._live[key].lessee is None]
        for key in unleased:
            if (
                self._live[key].idle or not self._live[key].usable
            ):  # it is being met, and for nobody
                return key
        if len(group) < MOST:
            group.append((spec.address, -next(self._numbers)))
            return group[-1]
        for key in unleased:
            if self._live[key].make_room():
                return key
        why = f"the server is busy: {MOST} calls are under way at it (scope: session)"
        where = f"[{spec.address}]"
        raise ServerUnavailable("overloaded", f"{where} Error: {why}", reason=why)
