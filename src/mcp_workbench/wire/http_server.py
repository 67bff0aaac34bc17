"""An open port for hosts over HTTP, and the clock of its connections. Knows nothing of MCP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp_workbench.timing import pause
from mcp_workbench.wire.http_connection import HttpConnection
from mcp_workbench.wire.http_reading import Front

TICK = pause(1.0)  # seconds between two looks at deadlines
CONNECTIONS = 2048
STRANGERS = 8  # one in so many connections may stay without a request that was let in
NEW = 5.0  # seconds for the first request of a connection, before it counts as a stranger's
BODIES = 4  # times the largest message: all that is being sent, of all connections


class HttpServer:
    """An open port, its connections and their clock."""

    def __init__(self, front: Front, body_bytes: int) -> None:
        self.front = front
        self.body_bytes = body_bytes
        self.connections: set[HttpConnection] = set()
        self.most = most_connections()
        self.strangers: dict[HttpConnection, None] = {}  # of them, oldest first
        self.held = 0
        self.most_held = BODIES * body_bytes
        self.loop = asyncio.get_running_loop()
        self.under_way = 0
        self.port = 0
        self.listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.tick()

    def tick(self) -> None:
        self._timer = self.loop.call_later(
            TICK, self.tick
        )  # first: whatever fails, the clock goes on
        self.now = self.loop.time()
        self.date = (
            b"Date: %b\r\n" % time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()).encode()
        )
        for connection in tuple(self.connections):
            connection.tick(self.now)
        self.thin_out()
        self.front.tick(self.now)

    # Connections

    def enter(self, connection: HttpConnection) -> bool:
        """Take a new one. Where there is no room, the stranger that came first makes it.

        Where there is no other stranger, it is the one that has been idle for the longest time.
        """
        self.connections.add(connection)
        self.strangers[connection] = None
        if len(self.connections) <= self.most:
            return True
        oldest = next(iter(self.strangers))
        if oldest is not connection:
            self._send_away(oldest)
            return True
        idle = [one for one in self.connections if one.is_idle]
        if not idle:
            return False
        longest = min(idle, key=lambda one: one.idle_since)
        self.left(longest)
        longest.leave()
        return True

    def let_in(self, connection: HttpConnection) -> None:
        self.strangers.pop(connection, None)

    def left(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self.strangers.pop(connection, None)

    def thin_out(self) -> None:
        """Strangers have their share; beyond it, those go that had the time to be none."""
        beyond = len(self.strangers) - max(1, self.most // STRANGERS)
        for connection in tuple(self.strangers)[: max(0, beyond)]:
            if self.now - connection.since > NEW:
                self._send_away(connection)

    def _send_away(self, connection: HttpConnection) -> None:
        self.left(connection)
        connection.abort()

    def stop(self) -> None:
        """Take no new connection; those that wait for nothing are closed."""
        if self.listener is not None:
            self.listener.close()
        for connection in tuple(self.connections):
            connection.leave()

    def end(self) -> None:
        """Whatever is still open is closed."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self.connections):
            connection.abort()


def most_connections() -> int:
    """As many as we take at once: half of what we may open belongs to our servers."""
    try:
        import resource  # not on Windows
    except ImportError:
        return CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, max(1, soft // 2))


class NotListening(Exception):
    """The system refused the port, and `why` is what it said."""

    def __init__(self, why: OSError) -> None:
        super().__init__(str(why))
        self.why = why


@asynccontextmanager
async def listening(
    front: Front, host: str, port: int, body_bytes: int
) -> AsyncGenerator[HttpServer]:
    """Listen for the length of the block. Raises NotListening where that can't be had."""
    server = HttpServer(front, body_bytes)
    try:
        try:
            listener = await server.loop.create_server(lambda: HttpConnection(server), host, port)
        except OSError as error:
            raise NotListening(error) from None
        server.listener = listener
        server.port = listener.sockets[0].getsockname()[1]
        yield server
    finally:
        server.stop()
        server.end()
