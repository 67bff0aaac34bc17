"""One host on HTTP/1.1: bytes in, requests to a front in their order, one at a time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import Protocol, cast

from mcp_workbench.wire.http_message import CONTINUE, Reply, Request, plain_head
from mcp_workbench.wire.http_reading import HEAD_TIME, NEVER, OUR_FAULT, Limits, RequestReader
from mcp_workbench.wire.http_response import Response
from mcp_workbench.wire.stdio import join_writes

log = logging.getLogger(__name__)

PIPELINED = 32  # requests that may wait behind the one that is being answered
AT_ONCE = 32  # requests that are begun with the bytes of one read
IDLE_TIME = 75.0  # seconds between two requests; more than most clients keep a connection
STALL_TIME = 60.0  # seconds in which a reader takes nothing
FEW = 4  # requests under way; with more, it pays to let what they send leave together
LINGER = 2.0  # seconds for a refused sender to read why


class Port(Limits, Protocol):
    """What all connections of a port share."""

    loop: asyncio.AbstractEventLoop
    under_way: int  # requests
    date: bytes

    def enter(self, connection: HttpConnection) -> bool:
        """A new one, of which nothing is known yet. Is there room for it?"""
        ...

    def let_in(self, connection: HttpConnection) -> None: ...
    def left(self, connection: HttpConnection) -> None: ...


class HttpConnection(RequestReader):
    """One peer. While it is answered we go on listening, so that we hear it leave."""

    def __init__(self, server: Port) -> None:
        super().__init__(server)
        self.server = server
        self.since = server.now
        self.idle_since = NEVER  # when the last answer was complete
        self._left = 0  # bytes that the peer had not taken when the clock last looked
        self._stalled = server.now

    # The transport

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
            self.server.under_way -= 1
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

    # Requests and answers

    def take(self, request: Request) -> None:
        self._taken += 1
        if self._response is None and not self._waiting and self._taken <= AT_ONCE:
            self._begin(request)
            return
        self._waiting.append(request)
        if len(self._waiting) > PIPELINED:
            self.deaf = True
            self.abort()
        elif self._response is None:
            self.server.loop.call_soon(self._next)

    def _begin(self, request: Request) -> None:
        if request.counted:
            self._hold(request, 0)
        self.server.under_way += 1
        if self.server.under_way > FEW:
            join_writes(self.server.loop)
        response = self._response = Response(self, request)
        if request.refused is not None:
            response.plain(request.refused)
            return
        try:
            self.server.front.handle(request, response)
        except Exception:  # a fault of ours costs one request
            log.exception("%s failed", request.method.decode())
            response.plain(OUR_FAULT)
            if not response.over:  # it had begun to stream
                self.abort()

    def answered(self, *, keep_alive: bool) -> None:
        """The response is complete; what waits behind it is next."""
        self._response = None
        self.server.under_way -= 1
        if not keep_alive and not self._waiting:
            self._linger()
        elif self._waiting:
            self.server.loop.call_soon(self._next)
        elif self._request is not None:
            self._deadline = self.server.now + HEAD_TIME
        elif self._entering is None:
            self._deadline = self.server.now + IDLE_TIME
            self.idle_since = monotonic()  # the loop's time stands still between two events

    def _next(self) -> None:
        if self._waiting and self._response is None and not self._transport.is_closing():
            self._begin(self._waiting.popleft())

    def _linger(self) -> None:
        """A sender in mid-sentence would lose our last words if we just hung up."""
        self.deaf = True
        self._deadline = self.server.now + LINGER
        with suppress(OSError, RuntimeError):
            self._transport.write_eof()

    @property
    def is_idle(self) -> bool:
        """Whether it was answered whole, and nothing of another request has come."""
        under_way = self._response or self._waiting or self._request or self._entering
        return not (under_way or self.deaf or self.backlog) and self.idle_since < NEVER

    def leave(self) -> None:
        """Close if nothing is under way, and otherwise after the answer."""
        self.deaf = True
        self.lasting = False
        if self._response is None:
            self._transport.close()

    def tick(self, now: float) -> None:
        left = self.backlog
        if left == 0 or left < self._left:
            self._stalled = now
        self._left = left
        if now > self._deadline or (left and now - self._stalled > STALL_TIME):
            self.abort()
