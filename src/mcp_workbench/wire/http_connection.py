"""One host on HTTP/1.1: bytes in, requests to a front in their order, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import Protocol, cast

import httptools

from mcp_workbench.wire.http_message import CONTINUE, Reply, Request, plain_head
from mcp_workbench.wire.http_response import Response
from mcp_workbench.wire.stdio import join_writes

log = logging.getLogger(__name__)

HEAD_BYTES = 1 << 16  # of a request line with its headers
HEAD_LINES = 128
PIPELINED = 32  # requests that may wait behind the one that is being answered
HEAD_TIME = 15.0  # seconds for a whole head
BODY_TIME = 60.0  # seconds without a byte of a body
IDLE_TIME = 75.0  # seconds between two requests; more than most clients keep a connection
STALL_TIME = 60.0  # seconds in which a reader takes nothing
FEW = 4  # requests under way; with more, it pays to let what they send leave together
LINGER = 2.0  # seconds for a refused sender to read why
NEVER = float("inf")

_OUR_FAULT = Reply(500, b"the workbench failed; see its log")
_TOO_LARGE = Reply(413, b"the message is too large (limits.messageBytes)")


class Front(Protocol):
    """Who answers. Nothing in it waits."""

    def admit(self, request: Request) -> Reply | None:
        """Judge a request by its head, before its body is read; None lets it in."""
        ...

    def handle(self, request: Request, response: Response) -> None: ...
    def tick(self, now: float) -> None: ...


class Port(Protocol):
    """What all connections of a port share."""

    front: Front
    body_bytes: int
    connections: set[HttpConnection]
    most: int  # connections at once
    loop: asyncio.AbstractEventLoop
    under_way: int  # requests
    now: float
    date: bytes


class HttpConnection(asyncio.Protocol):
    """One peer. While it is answered we go on listening, so that we hear it leave."""

    def __init__(self, server: Port) -> None:
        self.server = server
        self.lasting = True  # another request may follow
        self._parser = httptools.HttpRequestParser(self)
        self._request: Request | None = None  # whose head is being read
        self._entering: Request | None = None  # whose body is being read
        self._head_bytes = 0
        self._began = False  # a head began in the data at hand
        self._large = False  # a head in it may be too large
        self._waiting: deque[Request] = deque()
        self._response: Response | None = None
        self._deadline = server.now + HEAD_TIME
        self._left = 0  # bytes that the peer had not taken when the clock last looked
        self._stalled = server.now

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.server.connections.add(self)
        if len(self.server.connections) > self.server.most:
            self.write(plain_head(Reply(503), b"Connection: close\r\n"))
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.lasting:
            return
        self._began = False
        self._large = self._request is not None or len(data) > HEAD_BYTES
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.lasting = False  # we go on in HTTP/1.1 and end with this answer
        except httptools.HttpParserCallbackError:
            log.exception("a request failed at the door")
            self._refuse_rest(self._request or Request(), _OUR_FAULT)
        except httptools.HttpParserError:
            if self.lasting:
                self._refuse_rest(self._request or Request(), Reply(400, b"bad request"))
        else:
            self._check_head(len(data))

    def _check_head(self, size: int) -> None:
        if self._entering is not None:
            self._deadline = self.server.now + BODY_TIME
        elif self._request is not None and not self._began:  # the head goes on
            self._head_bytes += size
            if self._head_bytes > HEAD_BYTES:
                self._refuse_rest(self._request, Reply(431, b"the head is too large"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lasting = False
        self.server.connections.discard(self)
        self._waiting.clear()
        response, self._response = self._response, None
        if response is not None:
            self.server.under_way -= 1
            response.lost()

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

    # The parser

    def on_message_begin(self) -> None:
        if not self.lasting:
            return
        self._request = Request()
        self._head_bytes = 0
        self._began = True
        if self._response is None:
            self._deadline = self.server.now + HEAD_TIME

    def on_url(self, url: bytes) -> None:
        if self._request is not None:
            self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._request is not None:  # otherwise a trailer's
            self._request.add_header(name, value)

    def on_headers_complete(self) -> None:
        request, self._request = self._request, None
        if request is None:
            return
        request.method = self._parser.get_method()
        version = self._parser.get_http_version()
        request.old = version == "1.0"
        more = self._parser.should_keep_alive() and b"upgrade" not in request.headers
        request.keep_alive = more and not request.old
        request.refused = self._judge(request, version)
        if request.refused is not None and _has_body(request):
            self._refuse_rest(request, request.refused)
            return
        self._entering = request
        if b"expect" in request.headers and self._response is None:
            self.write(CONTINUE)

    def _judge(self, request: Request, version: str) -> Reply | None:
        if version not in ("1.1", "1.0"):
            return Reply(505, b"HTTP/1.1 is spoken here")
        if version == "1.0" and b"transfer-encoding" in request.headers:
            return Reply(400, b"HTTP/1.0 knows no chunks")  # who counts bytes would end elsewhere
        if request.headers.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            return Reply(501, b"no other transfer coding than chunked is known")
        if b"upgrade" in request.headers and _has_body(request):  # the parser would not read it
            return Reply(501, b"HTTP/1.1 is spoken here: send this without Upgrade")
        if request.head_lines > HEAD_LINES or (self._large and request.head_size > HEAD_BYTES):
            return Reply(431, b"the head is too large")
        if (refused := self.server.front.admit(request)) is not None:
            return refused
        size = request.headers.get(b"content-length")
        return _TOO_LARGE if size is not None and int(size) > self.server.body_bytes else None

    def on_body(self, data: bytes) -> None:
        request = self._entering
        if request is None:
            return
        request.add_chunk(data)
        if request.size > self.server.body_bytes:
            self._refuse_rest(request, _TOO_LARGE)

    def on_message_complete(self) -> None:
        request, self._entering = self._entering, None
        if request is None:
            return
        request.close_body()
        self._deadline = NEVER
        self._take(request)

    # Requests and answers

    def _refuse_rest(self, request: Request, reply: Reply) -> None:
        """Answer when it is its turn, and hear nothing more from this peer."""
        self._request = self._entering = None
        self.lasting = request.keep_alive = False
        self._deadline = NEVER
        request.chunks.clear()
        request.refused = reply
        self._take(request)

    def _take(self, request: Request) -> None:
        if self._response is None and not self._waiting:
            self._begin(request)
            return
        self._waiting.append(request)
        if len(self._waiting) > PIPELINED:
            self.abort()

    def _begin(self, request: Request) -> None:
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
            response.plain(_OUR_FAULT)
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
        elif self._entering is None and self._request is None:
            self._deadline = self.server.now + IDLE_TIME
        else:
            self._deadline = self.server.now + HEAD_TIME

    def _next(self) -> None:
        if self._waiting and self._response is None and not self._transport.is_closing():
            self._begin(self._waiting.popleft())

    def _linger(self) -> None:
        """A sender in mid-sentence would lose our last words if we just hung up."""
        self.lasting = False
        self._deadline = self.server.now + LINGER
        with suppress(OSError, RuntimeError):
            self._transport.write_eof()

    def leave(self) -> None:
        """Close if nothing is under way, and otherwise after the answer."""
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


def _has_body(request: Request) -> bool:
    return b"transfer-encoding" in request.headers or (
        request.headers.get(b"content-length", b"0") != b"0"
    )
