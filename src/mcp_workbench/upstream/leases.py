"""Leases: connections that short-lived hosts use in turn, one call at a time.

With one call per connection, a request of the server can only belong to that call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import count

from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.server_requests import ConnectionHost

ConnectionKey = ServerAddress | tuple[ServerAddress, int]  # shared, or of one host

MOST_CONNECTIONS = 4  # leased connections to one server
MOST_PER_PRINCIPAL = 4 * MOST_CONNECTIONS  # leased, whatever its hosts declare


class Leases:
    """Which host holds which connection, among hosts that last for one request.

    A host holds its key until it leaves, whatever becomes of the connection: one that ends meanwhile
    is started again under the same key, and is free for others afterwards.
    """

    def __init__(
        self, live: dict[ConnectionKey, Connection], drop: Callable[[ConnectionKey], None]
    ) -> None:
        self._live = live
        self._drop = drop  # stops the connection and forgets its key
        self._leased: set[ConnectionKey] = set()
        # By server and principal, then by what their hosts declare.
        self._groups: dict[tuple[ServerAddress, Hashable], dict[Hashable, list[ConnectionKey]]] = {}
        self._numbers = count(1)

    def key(self, spec: ServerSpec, host: ConnectionHost) -> ConnectionKey:
        """The key of the connection that this host holds, leased if it holds none."""
        key = host.leases.get(spec.address)
        if key is None:
            key = host.leases[spec.address] = self._free(spec, host)
            self._leased.add(key)
            if key in self._live:
                self._live[key].server_requests.host = host
        return key

    def end(self, host: ConnectionHost) -> None:
        """The host leaves. A call that waits for a person keeps its connection busy."""
        self._leased.difference_update(host.leases.values())
        host.leases.clear()

    def _free(self, spec: ServerSpec, host: ConnectionHost) -> ConnectionKey:
        groups = self._groups.setdefault((spec.address, host.owner), {})
        for declared, keys in tuple(groups.items()):
            self._forget_ended(keys)
            if not keys:
                del groups[declared]
        group = groups.get(host.key, [])
        unleased = [key for key in group if key not in self._leased]
        for key in unleased:
            connection = self._live[key]
            if connection.idle or not connection.usable:  # or starting, and for nobody
                return key
        if len(group) < MOST_CONNECTIONS and self._has_room(groups.values()):
            groups.setdefault(host.key, []).append((spec.address, -next(self._numbers)))
            return groups[host.key][-1]
        for key in unleased:
            if _make_idle(self._live[key]):
                return key
        reason = (
            f"the server is busy: {MOST_CONNECTIONS} calls are under way at it (scope: session)"
        )
        where = f"[{spec.address}]"
        raise ServerUnavailable("overloaded", f"{where} Error: {reason}", reason=reason)

    def _forget_ended(self, keys: list[ConnectionKey]) -> None:
        for key in [key for key in keys if key not in self._leased]:
            if key not in self._live or self._live[key].over:
                keys.remove(key)
                self._drop(key)

    def _has_room(self, groups: Iterable[list[ConnectionKey]]) -> bool:
        """Is there room for one more? A principal that always declares something new is limited too."""
        groups = tuple(groups)
        if sum(map(len, groups)) < MOST_PER_PRINCIPAL:
            return True
        for group in groups:
            for key in group:
                if key not in self._leased and self._live[key].idle:
                    group.remove(key)
                    self._drop(key)
                    return True
        return False


def _make_idle(connection: Connection) -> bool:
    """Give up the oldest suspended call, if nobody waits for its outcome."""
    handler = connection.conversation.pending.oldest(lambda handler: handler.suspended)
    return handler is not None and handler.give_way()
