"""What one host sends over HTTP/1.1: bytes in, requests out, within limits that count as they come."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

import httptools

from mcp_workbench.wire.http_message import HEAD_LINES, Reply, Request
from mcp_workbench.wire.http_response import Response

log = logging.getLogger(__name__)

HEAD_BYTES = 1 << 16  # of a request line with its headers, and of a trailer
PIECE = 1 << 13  # bytes of heads that are parsed before we count again
FRAMING = 8  # bytes of chunks' sizes and extensions for each byte that they carry
SMALL_BODY = 1 << 16  # taken whatever others have sent
HEAD_TIME = 15.0  # seconds for a whole head
BODY_TIME = 60.0  # seconds for a body, or for each PACE bytes of it
PACE = 1 << 16
NEVER = float("inf")

OUR_FAULT = Reply(500, b"the workbench failed; see its log")
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


class Limits(Protocol):
    """What all readers of a port share."""

    front: Front
    body_bytes: int
    held: int  # bytes of requests that have come and are not being answered yet
    most_held: int
    now: float


class RequestReader(asyncio.Protocol):
    """Reads the requests of one peer. Whoever inherits takes them.

    The parser joins whatever it has of an unfinished line. So bytes are counted as they come: those
    that are no body's, since the head began or the last of a body came, are never more than a head
    may have.
    """

    def __init__(self, port: Limits) -> None:
        self._port = port
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
        self._deadline = port.now + HEAD_TIME

    def take(self, request: Request) -> None:
        """Answer it when it is its turn."""
        raise NotImplementedError

    def go_ahead(self) -> None:
        """Say that the body may come."""
        raise NotImplementedError

    def let_in(self) -> None:
        """A request of this peer was let in, for the first time."""
        raise NotImplementedError

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
            self._refuse_rest(self._current, OUR_FAULT)
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
            self._deadline = self._port.now + BODY_TIME
            self._paced = request.size

    # The parser

    def on_message_begin(self) -> None:
        if self.deaf:
            return
        self._request = Request()
        self._turned = True
        if self._response is None:
            self._deadline = self._port.now + HEAD_TIME

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
            self.go_ahead()

    def _judge(self, request: Request) -> Reply | None:
        large = self._goes_on and request.head_size > HEAD_BYTES
        if large or request.lines > HEAD_LINES:
            return _HEAD_TOO_LARGE
        if (refused := self._port.front.admit(request)) is not None:
            return refused
        if self._stranger:
            self._stranger = False
            self.let_in()
        size = request.headers.get(b"content-length")
        return _TOO_LARGE if size is not None and int(size) > self._port.body_bytes else None

    def on_body(self, data: bytes) -> None:
        request = self._entering
        if request is None:
            return
        request.add_chunk(data)
        if request.size > self._port.body_bytes:
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
        self.take(request)

    def _refuse_rest(self, request: Request, reply: Reply) -> None:
        """Answer when it is its turn, and hear nothing more from this peer."""
        self._request = self._entering = None
        self.deaf = True
        request.keep_alive = False
        self._deadline = NEVER
        request.chunks.clear()
        self._hold(request, 0)
        request.refused = reply
        self.take(request)

    def _may_hold(self, request: Request, size: int) -> bool:
        """So many bytes of it wait here by now. Where that is too much, it is refused."""
        self._hold(request, size)
        if self._held > self._port.body_bytes + HEAD_BYTES:
            self._refuse_rest(request, _TOO_MUCH)
        elif self._port.held > self._port.most_held and size > SMALL_BODY:
            self._refuse_rest(request, _BUSY)
        else:
            return True
        return False

    def _hold(self, request: Request, size: int) -> None:
        more = size - request.counted
        request.counted = size
        self._held += more
        self._port.held += more


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
