"""One host on HTTP/1.1: bytes in, requests to a front in their order, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import Protocol, cast

import httptools

from mcp_workbench.wire.http_message import CONTINUE, HEAD_LINES, Reply, Request, plain_head
from mcp_workbench.wire.http_response import Response
from mcp_workbench.wire.stdio import join_writes

log = logging.getLogger(__name__)

HEAD_BYTES = 1 << 16  # of a request line with its headers, and of a trailer
PIECE = 1 << 13  # bytes of heads that are parsed before we count again
FRAMING = 8  # bytes of chunks' sizes and extensions for each byte that they carry
PIPELINED = 32  # requests that may wait behind the one that is being answered
AT_ONCE = 32  # requests that are begun with the bytes of one read
SMALL_BODY = 1 << 16  # taken whatever others have sent
HEAD_TIME = 15.0  # seconds for a whole head
BODY_TIME = 60.0  # seconds for a body, or for each PACE bytes of it
PACE = 1 << 16
IDLE_TIME = 75.0  # seconds between two requests; more than most clients keep a connection
STALL_TIME = 60.0  # seconds in which a reader takes nothing
FEW = 4  # requests under way; with more, it pays to let what they send leave together
LINGER = 2.0  # seconds for a refused sender to read why
NEVER = float("inf")

_OUR_FAULT = Reply(500, b"the workbench failed; see its log")
_TOO_LARGE = Reply(413, b"the message is too large (limits.messageBytes)")
_TOO_MUCH = Reply(413, b"too much waits on this connection (limits.messageBytes)")
_HEAD_TOO_LARGE = Reply(431, b"the head is too large")
_TOO_WORDY = Reply(400, b"the body is cut into too many chunks")
_BUSY = Reply(503, b"too much is being sent at once; try again soon", b"Retry-After: 1\r\n")
_GO_AHEAD = b"100-continue"


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
    held: int  # bytes of requests that have come and are not being answered yet
    most_held: int
    loop: asyncio.AbstractEventLoop
    under_way: int  # requests
    now: float
    date: bytes

    def enter(self, connection: HttpConnection) -> bool:
        """A new one, of which nothing is known yet. Is there room for it?"""
        ...

    def let_in(self, connection: HttpConnection) -> None:
        """A request of it was let in."""
        ...

    def left(self, connection: HttpConnection) -> None: ...


class HttpConnection(asyncio.Protocol):
    """One peer. While it is answered we go on listening, so that we hear it leave.

    The parser joins whatever it has of an unfinished line. So bytes are counted as they come: those
    that are no body's, since the head began or the last of a body came, are never more than a head
    may have.
    """

    def __init__(self, server: Port) -> None:
        self.server = server
        self.since = server.now
        self.lasting = True  # another request may follow
        self.deaf = False  # nothing more of it is read
        self._stranger = True  # no request of it was let in
        self._parser = httptools.HttpRequestParser(self)
        self._request: Request | None = None  # whose head is being read
        self._entering: Request | None = None  # whose body is being read
        self._turned = False  # a request began or ended in the piece at hand
        self._goes_on = False  # a head began in an earlier piece
        self._raw = 0  # bytes since the piece in which the head began
        self._loose = 0  # of them, those since a piece that had some of a body
        self._paced = 0  # bytes of the body when it was last given time
        self._held = 0  # bytes of requests that wait, and of the body that is being read
        self._taken = 0  # requests in the read at hand
        self._waiting: deque[Request] = deque()
        self._response: Response | None = None
        self._deadline = server.now + HEAD_TIME
        self._left = 0  # bytes that the peer had not taken when the clock last looked
        self._stalled = server.now

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self.server.enter(self):
            self.write(plain_head(Reply(503), b"Connection: close\r\n"))
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self._taken = 0
        if len(data) <= PIECE:
            self._read(data)
            return
        rest = memoryview(data)
        while rest and not self.deaf:
            size = PIECE if self._entering is None else len(rest)
            self._read(rest[:size])
            rest = rest[size:]

    def _read(self, piece: bytes | memoryview) -> None:
        self._turned = False
        self._goes_on = self._request is not None or len(piece) > HEAD_BYTES
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self.deaf = True  # we go on in HTTP/1.1 and end with this answer
            self.lasting = False
        except httptools.HttpParserCallbackError:
            log.exception("a request failed at the door")
            self._refuse_rest(self._current, _OUR_FAULT)
        except httptools.HttpParserError:
            if not self.deaf:
                self._refuse_rest(self._current, Reply(400, b"bad request"))
        else:
            if self._turned:  # where in the piece is not known: what comes after it counts
                self._raw = self._loose = 0
            if not self._turned or self._entering is not None or self._request is not None:
                self._count(len(piece))

    @property
    def _current(self) -> Request:
        """What is being read; a new one where nothing can be made out yet."""
        return self._request or self._entering or Request()

    def _count(self, size: int) -> None:
        """A piece was read that did not just end a request."""
        if self.deaf:
            return
        request = self._entering
        if not self._turned:
            self._raw += size
            moved = request is not None and request.size > request.counted
            self._loose = 0 if moved else self._loose + size
        if self._loose > HEAD_BYTES or (self._request and self._request.lines > HEAD_LINES):
            self._refuse_rest(self._current, _HEAD_TOO_LARGE)
        elif request is not None and self._may_hold(request, request.size):
            self._pace(request)

    def _pace(self, request: Request) -> None:
        if self._raw > HEAD_BYTES + (1 + FRAMING) * request.size:
            self._refuse_rest(request, _TOO_WORDY)
        elif self._turned or request.size - self._paced >= PACE:
            self._deadline = self.server.now + BODY_TIME
            self._paced = request.size

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
        if self.deaf:
            return
        self._request = Request()
        self._turned = True
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
        self._turned = True
        request.method = self._parser.get_method()
        version = self._parser.get_http_version()
        request.keep_alive = self._parser.should_keep_alive()
        headers = request.headers
        if (
            version != "1.1"
            or b"transfer-encoding" in headers
            or b"upgrade" in headers
            or b"expect" in headers
        ):
            request.old = version == "1.0"
            request.keep_alive &= not (request.old or b"upgrade" in headers)
            request.refused = _unreadable(request, version)
        if request.refused is None:
            request.refused = self._judge(request)
        if request.refused is not None and _has_body(request):
            self._refuse_rest(request, request.refused)
            return
        self._entering = request
        if b"expect" in headers and self._response is None:
            self._let_go_on(request)

    def _let_go_on(self, request: Request) -> None:
        if request.refused is None and not request.old:
            self.write(CONTINUE)

    def _judge(self, request: Request) -> Reply | None:
        large = self._goes_on and request.head_size > HEAD_BYTES
        if large or request.lines > HEAD_LINES:
            return _HEAD_TOO_LARGE
        if (refused := self.server.front.admit(request)) is not None:
            return refused
        if self._stranger:
            self._stranger = False
            self.server.let_in(self)
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
        self._turned = True
        self._deadline = NEVER
        if not request.keep_alive:
            self.deaf = True
        waits = self._response is not None or self._waiting
        if waits and not self._may_hold(request, request.size + request.head_size):
            return
        request.close_body()
        self._take(request)

    # Requests and answers

    def _refuse_rest(self, request: Request, reply: Reply) -> None:
        """Answer when it is its turn, and hear nothing more from this peer."""
        self._request = self._entering = None
        self.deaf = True
        request.keep_alive = False
        self._deadline = NEVER
        request.chunks.clear()
        self._hold(request, 0)
        request.refused = reply
        self._take(request)

    def _may_hold(self, request: Request, size: int) -> bool:
        """So many bytes of it wait here by now. Where that is too much, it is refused."""
        self._hold(request, size)
        if self._held > self.server.body_bytes + HEAD_BYTES:
            self._refuse_rest(request, _TOO_MUCH)
        elif self.server.held > self.server.most_held and size > SMALL_BODY:
            self._refuse_rest(request, _BUSY)
        else:
            return True
        return False

    def _hold(self, request: Request, size: int) -> None:
        more = size - request.counted
        request.counted = size
        self._held += more
        self.server.held += more

    def _take(self, request: Request) -> None:
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
        elif self._request is not None:
            self._deadline = self.server.now + HEAD_TIME
        elif self._entering is None:
            self._deadline = self.server.now + IDLE_TIME

    def _next(self) -> None:
        if self._waiting and self._response is None and not self._transport.is_closing():
            self._begin(self._waiting.popleft())

    def _linger(self) -> None:
        """A sender in mid-sentence would lose our last words if we just hung up."""
        self.deaf = True
        self._deadline = self.server.now + LINGER
        with suppress(OSError, RuntimeError):
            self._transport.write_eof()

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


def _unreadable(request: Request, version: str) -> Reply | None:
    """What is said about a request that this side of HTTP does not speak."""
    headers = request.headers
    if version not in ("1.1", "1.0"):
        return Reply(505, b"HTTP/1.1 is spoken here")
    if b"transfer-encoding" in headers:
        if request.old:  # who counts bytes would end elsewhere
            return Reply(400, b"HTTP/1.0 knows no chunks")
        if headers[b"transfer-encoding"].lower() != b"chunked":
            return Reply(501, b"no other transfer coding than chunked is known")
    if b"upgrade" in headers and _has_body(request):  # the parser would not read it
        return Reply(501, b"HTTP/1.1 is spoken here: send this without Upgrade")
    expected = headers.get(b"expect", _GO_AHEAD).lower().split(b",")
    if any(one.strip() != _GO_AHEAD for one in expected) and not request.old:
        return Reply(417, b"only 100-continue can be expected here")
    return None


def _has_body(request: Request) -> bool:
    return b"transfer-encoding" in request.headers or (
        request.headers.get(b"content-length", b"0") != b"0"
    )
