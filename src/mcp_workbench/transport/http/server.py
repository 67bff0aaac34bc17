"""HTTP/1.1 server: an open port, its connections, and the clock for their deadlines. No MCP here.

A connection passes its requests to a front in their order, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol, cast

from mcp_workbench.timing import pause
from mcp_workbench.transport.http.messages import (
    CONTINUE,
    HttpRequest,
    Reply,
    ResponseWriter,
    plain_head,
)
from mcp_workbench.transport.http.reading import (
    BUSY,
    HEAD_TIME,
    NEVER,
    OUR_FAULT,
    SMALL_BODY,
    Front,
    ReaderLimits,
    RequestReader,
)
from mcp_workbench.transport.long_steps import add_long_step
from mcp_workbench.transport.stdio import JoinedWrites

log = logging.getLogger(__name__)

PIPELINED = 32  # requests that may wait behind the one in progress
AT_ONCE = 32  # requests that are started with the bytes of one read
IDLE_TIME = 75.0  # seconds between two requests; more than most clients keep a connection
STALL_TIME = 60.0  # seconds in which a peer reads nothing
FEW = 4  # requests in progress; with more, it pays to join their writes
LINGER = 2.0  # seconds for a refused sender to read why
TICK = pause(1.0)  # seconds between two checks of deadlines
CONNECTIONS = 2048
STRANGERS = 8  # one in so many connections may stay without an admitted request
NEW = 5.0  # seconds for the first request of a connection, before it may be dropped as a stranger
BODIES = 4  # times the largest message: bytes of requests that wait, over all connections
IN_PROGRESS = 16  # times the largest message: bytes of large requests whose calls are in flight


class Port(ReaderLimits, Protocol):
    """What all connections of a port share."""

    loop: asyncio.AbstractEventLoop
    writes: JoinedWrites
    under_way: int  # requests in progress
    bytes_under_way: int  # of those with large bodies
    most_under_way: int  # such bytes
    date: bytes

    def enter(self, connection: HttpConnection) -> bool:
        """Add a new connection. Returns whether there is room for it."""
        ...

    def let_in(self, connection: HttpConnection) -> None: ...
    def left(self, connection: HttpConnection) -> None: ...


class HttpConnection(RequestReader):
    """One peer. Reading goes on while a request is in progress, so that a disconnect is noticed."""

    def __init__(self, server: Port) -> None:
        super().__init__(server)
        self.server = server
        self.since = server.now
        self.idle_since = NEVER  # when the last response was complete
        self._bytes_under_way = 0  # of the request in progress, if its body is large
        self._left = 0  # bytes that the peer had not read at the last tick
        self._stalled = server.now

    # Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self.server.enter(self):
            self.write(plain_head(Reply(503), b"Connection: close\r\n"))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.deaf = True
        self.lasting = False
        self.server.left(self)
        self.server.held -= self._held
        self._held = 0
        self._waiting.clear()
        response, self._response = self._response, None
        if response is not None:
            self._is_done()
            response.lost()

    def go_ahead(self) -> None:
        self.write(CONTINUE)

    def let_in(self) -> None:
        self.server.let_in(self)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    @property
    def date(self) -> bytes:
        return self.server.date

    @property
    def backlog(self) -> int:
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        self._transport.abort()

    # Requests and responses

    def take(self, request: HttpRequest) -> None:
        self._taken += 1
        is_light = self._taken <= AT_ONCE and request.steps is None
        if self._response is None and not self._waiting and is_light:
            self._begin(request)
            return
        if request.steps is not None:
            request.steps = self._read_in_steps(request, request.steps)
        self._waiting.append(request)
        if len(self._waiting) > PIPELINED:
            self.deaf = True
            self.abort()
        elif self._response is None and len(self._waiting) == 1:  # else it is called already
            self._call_next()

    def _begin(self, request: HttpRequest) -> None:
        if request.counted:
            self._hold(request, 0)
        self.server.under_way += 1
        if self.server.under_way > FEW:
            self.server.writes.join(self.server.loop)
        if len(request.body) > SMALL_BODY and request.refused is None:
            self._count_under_way(request)
        response = self._response = ResponseWriter(self, request)
        if request.refused is not None:
            response.plain(request.refused)
            return
        try:
            self.server.front.handle(request, response)
        except Exception:  # our own bug fails this request only
            log.exception("%s failed", request.method.decode())
            response.plain(OUR_FAULT)
            if not response.over:  # it has started to stream
                self.abort()

    def _count_under_way(self, request: HttpRequest) -> None:
        """Count a large body until its response is complete. Refuses it if those of all are too much."""
        size = len(request.body)
        if self.server.bytes_under_way + size > self.server.most_under_way:
            request.refused = BUSY
            return
        self._bytes_under_way = size
        self.server.bytes_under_way += size

    def _is_done(self) -> None:
        self.server.under_way -= 1
        if self._bytes_under_way:
            self.server.bytes_under_way -= self._bytes_under_way
            self._bytes_under_way = 0

    def answered(self, *, keep_alive: bool) -> None:
        """The response is complete: start the next request."""
        self._response = None
        self._is_done()
        if not keep_alive and not self._waiting:
            self._linger()
        elif self._waiting:
            self._call_next()
        elif self._request is not None:
            self._deadline = self.server.now + HEAD_TIME
        elif self._entering is None:
            self._deadline = self.server.now + IDLE_TIME
            self.idle_since = time.monotonic()  # uvloop's time stands still between two events

    def _call_next(self) -> None:
        if self._waiting[0].steps is None:
            self.server.loop.call_soon(self._next)
        else:
            add_long_step(self._next)

    def _next(self) -> None:
        """Begin the next request. One with a huge body is joined and read first, in steps of their own."""
        if not self._waiting or self._response is not None or self._transport.is_closing():
            return
        request = self._waiting[0]
        if request.steps is None:
            self._begin(self._waiting.popleft())
        else:
            self._read_on(request, request.steps)
            add_long_step(self._next)

    def _read_in_steps(self, request: HttpRequest, joining: Iterator[None]) -> Iterator[None]:
        yield from joining
        yield
        yield from self.server.front.read_ahead(request)

    def _read_on(self, request: HttpRequest, steps: Iterator[None]) -> None:
        try:
            next(steps)
        except StopIteration:
            request.steps = None
        except Exception:  # our own bug fails this request only
            log.exception("%s failed", request.method.decode())
            request.steps, request.refused = None, OUR_FAULT

    def _linger(self) -> None:
        """Close our side only: a peer that is still sending would lose our response otherwise."""
        self.deaf = True
        self._deadline = self.server.now + LINGER
        with suppress(OSError, RuntimeError):
            self._transport.write_eof()

    @property
    def is_idle(self) -> bool:
        """Whether its last response is complete, and no byte of another request has arrived."""
        under_way = self._response or self._waiting or self._request or self._entering
        return not (under_way or self.deaf or self.backlog) and self.idle_since < NEVER

    def leave(self) -> None:
        """Close now if no request is in progress, otherwise after the response."""
        self.deaf = True
        self.lasting = False
        if self._response is None and not self._waiting:
            self._transport.close()

    def tick(self, now: float) -> None:
        left = self.backlog
        if left == 0 or left < self._left:
            self._stalled = now
        self._left = left
        if now > self._deadline or (left and now - self._stalled > STALL_TIME):
            self.abort()


class HttpServer:
    """An open port, its connections, and the clock for their deadlines."""

    def __init__(self, front: Front, body_bytes: int) -> None:
        self.front = front
        self.body_bytes = body_bytes
        self.connections: set[HttpConnection] = set()
        self.most = most_connections()
        self.strangers: dict[HttpConnection, None] = {}  # of them, oldest first
        self.held = 0
        self.most_held = BODIES * body_bytes
        self.bytes_under_way = 0
        self.most_under_way = IN_PROGRESS * body_bytes
        self.loop = asyncio.get_running_loop()
        self.writes = JoinedWrites.of(self.loop)
        self.under_way = 0
        self.port = 0
        self.listener: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.tick()

    def tick(self) -> None:
        self._timer = self.loop.call_later(
            TICK, self.tick
        )  # first: the clock goes on even if something below fails
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
        """Add a connection. If the port is full, the oldest stranger is dropped.

        If there is no other stranger, the connection that has been idle longest is closed.
        """
        self.connections.add(connection)
        self.strangers[connection] = None
        if len(self.connections) <= self.most:
            return True
        oldest = next(iter(self.strangers))
        if oldest is not connection:
            self._drop(oldest)
            return True
        idle = [connection for connection in self.connections if connection.is_idle]
        if not idle:
            return False
        longest = min(idle, key=lambda connection: connection.idle_since)
        self.left(longest)
        longest.leave()
        return True

    def let_in(self, connection: HttpConnection) -> None:
        self.strangers.pop(connection, None)

    def left(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self.strangers.pop(connection, None)

    def thin_out(self) -> None:
        """Drop strangers beyond their share that have had the time to send a request."""
        beyond = len(self.strangers) - max(1, self.most // STRANGERS)
        for connection in tuple(self.strangers)[: max(0, beyond)]:
            if self.now - connection.since > NEW:
                self._drop(connection)

    def _drop(self, connection: HttpConnection) -> None:
        self.left(connection)
        connection.abort()

    def stop(self) -> None:
        """Accept no new connection; close the idle ones."""
        if self.listener is not None:
            self.listener.close()
        for connection in tuple(self.connections):
            connection.leave()

    def end(self) -> None:
        """Close everything that is still open."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self.connections):
            connection.abort()


def most_connections() -> int:
    """Return how many we accept at once: half of our descriptors are for upstream servers."""
    try:
        import resource  # not on Windows
    except ImportError:
        return CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, max(1, soft // 2))


class NotListening(Exception):
    """The system refused the port, for the reason `why`."""

    def __init__(self, why: OSError) -> None:
        super().__init__(str(why))
        self.why = why


@asynccontextmanager
async def listening(
    front: Front, host: str, port: int, body_bytes: int
) -> AsyncGenerator[HttpServer]:
    """Listen for the length of the block. Raises NotListening if the port can't be opened."""
    server = HttpServer(front, body_bytes)
    try:
        try:
            # As bytes, which the loop passes on as they are: the IDNA codec is slow to load.
            names = cast("list[str]", [host.encode()]) if host.isascii() else host
            listener = await server.loop.create_server(lambda: HttpConnection(server), names, port)
        except OSError as error:
            raise NotListening(error) from None
        server.listener = listener
        server.port = listener.sockets[0].getsockname()[1]
        yield server
    finally:
        server.stop()
        server.end()
