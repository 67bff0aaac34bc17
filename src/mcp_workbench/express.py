"""The commonest call, sent in one step: to a legacy server that is ready, shared and not busy.

Between two calls everybody sleeps, and a processor that wakes up has to fetch again whatever it runs:
what counts is how little that is. Everything else takes the longer way of `Workbench.begin`."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

import msgspec

from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.core.sight import Sight
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.pool import ConnectionPool
from mcp_workbench.downstream.room import FEW
from mcp_workbench.downstream.waiters import Waiter

LITTLE = 1 << 16  # bytes on their way: where there are more, the server is slow


class Caller(Waiter, Protocol):
    """Whoever makes the call: told its number."""

    id: bytes  # of the host's request
    number: int


Leaving = Callable[[bytes, "Route"], None]


class Route:
    """Where the calls of one tool go: found out once, and good until something changes."""

    __slots__ = (
        "_bytes",
        "_calls",
        "_catalogue",
        "_channel",
        "_middle",
        "_pending",
        "_pool",
        "_sight",
        "_snapshot",
        "_timeout",
        "_wares",
        "connection",
        "tool",
    )

    def __init__(  # noqa: PLR0913 - what a call needs
        self,
        tool: ToolIdentifier,
        name: bytes,
        spec: ServerSpec,
        connection: Connection,
        sight: Sight,
        pool: ConnectionPool,
    ) -> None:
        self.tool = tool
        self.connection = connection
        self._middle = b',"method":"tools/call","params":{"name":%b,"arguments":' % name
        self._timeout = spec.timeout
        self._calls = min(FEW, pool.around.limits.calls_per_server)
        self._bytes = min(LITTLE, pool.around.limits.queue_bytes)
        self._pending = connection.conversation.pending
        self._channel = connection.conversation.channel
        self._pool = pool
        self._sight = sight
        self._snapshot = sight.snapshot
        self._wares = connection.wares
        self._catalogue = connection.catalogue

    def is_gone(self) -> bool:
        """Can it never be good again? Then whoever keeps it keeps a closed connection."""
        return self.connection.over or self._sight.snapshot is not self._snapshot

    def send(self, caller: Caller, arguments: msgspec.Raw, leaving: Leaving | None) -> bool:
        """Send a call, if all is as it was, and the server so little busy that no limit is near.

        `leaving` is told before, when nothing can come in between any more.
        """
        connection, pending, channel = self.connection, self._pending, self._channel
        if (
            connection.over
            or not connection.plain
            or self._sight.snapshot is not self._snapshot
            or self._wares.catalogue is not self._catalogue
            or len(pending.waiting) >= self._calls
            or channel.backlog > self._bytes
        ):
            return False
        if leaving is not None:
            leaving(caller.id, self)
        caller.number = number = pending.add(caller, monotonic() + self._timeout)
        channel.send(b'{"jsonrpc":"2.0","id":%d%b%b}}\n' % (number, self._middle, arguments))
        if self._pool.clock is None:
            self._pool.watch_deadlines()
        return True


def find_route(tool: ToolIdentifier, sight: Sight, pool: ConnectionPool) -> Route | None:
    """The route to this tool, if calls of it can be sent so now."""
    box = sight.snapshot.toolboxes.get(tool.toolbox)
    spec = None if box is None else box.servers.get(tool.server)
    connection = None if spec is None else pool.shared.get(spec.address)
    if spec is None or connection is None or not connection.plain or connection.over:
        return None
    name = connection.visible(spec.tools).get(tool.tool)
    return None if name is None else Route(tool, name, spec, connection, sight, pool)
