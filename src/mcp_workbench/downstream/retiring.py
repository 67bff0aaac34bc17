"""Connections whose place others take: no new calls, an end when theirs have ended."""

from __future__ import annotations

import time
from collections.abc import Mapping

from mcp_workbench.config.expand import Way
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.leases import Key
from mcp_workbench.downstream.states import Connecting

_CHANGED = "its entry in the configuration has changed"
_REMOVED = "it was removed from the configuration"


class Retiring:
    """What was begun in which way, what is on its way out, and what its successors inherit."""

    def __init__(self, live: dict[Key, Connection]) -> None:
        self._live = live
        self._ways: dict[Key, Way] = {}
        self._until: dict[Connection, float] = {}
        self._before: dict[Key, Connection | None] = {}  # whose place is to be taken

    def begun(self, key: Key, connection: Connection, way: Way) -> None:
        """A connection has begun; what differs from the one before it will be announced."""
        self._ways[key] = way
        if key in self._before:
            before = self._before.pop(key)
            connection.succeeds = True
            connection.offers.succeed(None if before is None else before.offers)
            if before is not None:
                connection.wares.catalogue = before.catalogue

    def expect(self, key: Key) -> None:
        """Whatever is begun here next has lists that nobody has seen."""
        if key not in self._live:
            self._before.setdefault(key, None)

    def forget(self, key: Key) -> None:
        """Whoever had a connection here is gone."""
        self._before.pop(key, None)
        self._ways.pop(key, None)

    def ways(self) -> dict[ServerAddress, Way]:
        """How the servers that were begun are reached; one with several connections counts once."""
        return {address_of(key): self._ways[key] for key in self._live}

    def renew(
        self,
        specs: Mapping[ServerAddress, ServerSpec],
        ways: Mapping[ServerAddress, Way],
        drain: float,
    ) -> dict[ServerAddress, Connection]:
        """Keep the connections that lead where they should, and retire the others: those are returned.

        Calls under way have `drain` seconds; one that waits for a person has all the time it needs.
        """
        until = time.monotonic() + drain
        retired: dict[ServerAddress, Connection] = {}
        for key, connection in tuple(self._live.items()):
            address = address_of(key)
            if self._ways[key] == ways.get(address):
                connection.spec = specs[address]  # filters and times, from the next call on
            else:
                retired[address] = connection
                self._retire(key, connection, until, wanted=address in specs)
        for key in [key for key in self._before if address_of(key) not in specs]:
            del self._before[key]
        return retired

    def _retire(self, key: Key, connection: Connection, until: float, *, wanted: bool) -> None:
        del self._live[key], self._ways[key]
        if wanted and not _leased(key):
            self._before[key] = (
                connection  # even one that was still to be met: it may have inherited
            )
        connection.retired = connection.over = True
        connection.usable = connection.succeeds = False
        connection.ending = _CHANGED if wanted else _REMOVED
        connection.wares.retire()
        if isinstance(connection.state, Connecting):
            connection.stop()  # whoever waits for it turns to its successor
        else:
            self._until[connection] = until
            self.tick(time.monotonic())

    def tick(self, now: float) -> bool:
        """Stop those that are done, or have had their time; are there others?"""
        for connection, until in tuple(self._until.items()):
            under_way = connection.expire(now)
            if not under_way or (now >= until and not connection.questions.any):
                del self._until[connection]
                connection.stop()
        return bool(self._until)

    def hold(self, *, held: bool) -> None:
        for connection in self._until:
            connection.hold(held=held)


def address_of(key: Key) -> ServerAddress:
    return key[0] if isinstance(key, tuple) else key


def _leased(key: Key) -> bool:
    """Is it of those that hosts take turns with? Nobody has it for long enough to hear of changes."""
    return isinstance(key, tuple) and key[1] < 0
