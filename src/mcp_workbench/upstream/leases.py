"""Connections that hosts take turns with, one call at a time: then a question can only be that call's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import count

from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.server_requests import Host

Key = ServerAddress | tuple[ServerAddress, int]  # shared, or of one host

MOST = 4  # connections to one server for those who take turns
MOST_OF_ONE = 4 * MOST  # of one principal, however differently its hosts declare themselves


class Leases:
    """Who has which connection, among hosts that come with one request and go.

    A key is its host's until that goes, whatever becomes of the connection: one that ends meanwhile
    is begun again under the same key, and is then there for others like any other.
    """

    def __init__(self, live: dict[Key, Connection], drop: Callable[[Key], None]) -> None:
        self._live = live
        self._drop = drop  # ends what is there, and forgets it
        self._leased: set[Key] = set()
        # By server and principal; those that declare the same are together.
        self._groups: dict[tuple[ServerAddress, Hashable], dict[Hashable, list[Key]]] = {}
        self._numbers = count(1)

    def key(self, spec: ServerSpec, host: Host) -> Key:
        """The connection that this host has, or may have from now on."""
        key = host.leases.get(spec.address)
        if key is None:
            key = host.leases[spec.address] = self._free(spec, host)
            self._leased.add(key)
            if key in self._live:
                self._live[key].questions.host = host
        return key

    def end(self, host: Host) -> None:
        """The host has gone. A call that waits for a person keeps its connection busy."""
        self._leased.difference_update(host.leases.values())
        host.leases.clear()

    def _free(self, spec: ServerSpec, host: Host) -> Key:
        groups = self._groups.setdefault((spec.address, host.owner), {})
        for declared, keys in tuple(groups.items()):
            self._forget_ended(keys)
            if not keys:
                del groups[declared]
        group = groups.get(host.key, [])
        unleased = [key for key in group if key not in self._leased]
        for key in unleased:
            if (
                self._live[key].idle or not self._live[key].usable
            ):  # it is being met, and for nobody
                return key
        if len(group) < MOST and self._has_place(groups.values()):
            groups.setdefault(host.key, []).append((spec.address, -next(self._numbers)))
            return groups[host.key][-1]
        for key in unleased:
            if _make_room(self._live[key]):
                return key
        why = f"the server is busy: {MOST} calls are under way at it (scope: session)"
        where = f"[{spec.address}]"
        raise ServerUnavailable("overloaded", f"{where} Error: {why}", reason=why)

    def _forget_ended(self, keys: list[Key]) -> None:
        for key in [key for key in keys if key not in self._leased]:
            if key not in self._live or self._live[key].over:
                keys.remove(key)
                self._drop(key)

    def _has_place(self, groups: Iterable[list[Key]]) -> bool:
        """Is there room for one more? Whoever declares ever new things starts no ever new servers."""
        groups = tuple(groups)
        if sum(map(len, groups)) < MOST_OF_ONE:
            return True
        for group in groups:
            for key in group:
                if key not in self._leased and self._live[key].idle:
                    group.remove(key)
                    self._drop(key)
                    return True
        return False


def _make_room(connection: Connection) -> bool:
    """Have the call that waits longest give way, if nobody waits for it."""
    waiter = connection.conversation.pending.oldest(lambda waiter: waiter.suspended)
    return waiter is not None and waiter.give_way()
