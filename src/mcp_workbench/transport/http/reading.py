"""HTTP/1.1 requests of one peer: bytes in, requests out, within limits on every part."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Protocol

import httptools

from mcp_workbench.transport.http.messages import (
    HEAD_LINES,
    HttpRequest,
    RepeatedHead,
    Reply,
    ResponseWriter,
)

log = logging.getLogger(__name__)

HEAD_BYTES = 1 << 16  # of a request line with its headers, and of a trailer
PIECE = 1 << 13  # bytes of heads that are parsed between two checks of the limits
FRAMING = 8  # bytes of chunk sizes and extensions allowed for each byte of content
SMALL_BODY = 1 << 16  # accepted however much other connections have sent
HEAD_TIME = 15.0  # seconds for a whole head
BODY_TIME = 60.0  # seconds for a body, or for each PACE bytes of it
PACE = 1 << 16
NEVER = float("inf")

OUR_FAULT = Reply(500, b"the workbench failed; see its log")
_TOO_LARGE = Reply(413, b"the message is too large (limits.messageBytes)")
_TOO_MUCH = Reply(413, b"too many bytes wait on this connection (limits.messageBytes)")
_HEAD_TOO_LARGE = Reply(431, b"the request head is too large")
_TOO_MANY_CHUNKS = Reply(400, b"the body is cut into too many chunks")
BUSY = Reply(503, b"too much is being sent at once; try again soon", b"Retry-After: 1\r\n")
_GO_AHEAD = b"100-continue"
_UNUSUAL = (
    b"transfer-encoding",
    b"expect",
    b"upgrade",
)  # with one of these, a head is always parsed


class Front(Protocol):
    """Handles requests. None of its methods waits."""

    def admit(self, request: HttpRequest) -> Reply | None:
        """Check a request by its head, before its body is read; None admits it."""
        ...

    def still_admits(self, request: HttpRequest) -> bool:
        """Whether `admit` would decide the same for the same head: nothing that it depends on has changed."""
        ...

    def read_ahead(self, request: HttpRequest) -> Iterator[None]:
        """Read a body above 4 MiB in several steps, before it is handled. Does not raise."""
        ...

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        """Answer it now or later. The request itself must not be kept: it may be used again."""
        ...

    def tick(self, now: float) -> None: ...


class ReaderLimits(Protocol):
    """What all readers of a port share."""

    front: Front
    body_bytes: int
    held: int  # bytes of requests that have arrived and are not in progress yet
    most_held: int
    now: float


class RequestReader(asyncio.Protocol):
    """Reads the requests of one peer; a subclass handles them.

    The parser buffers an unfinished line without a limit. So bytes are counted as they arrive: those
    that are not part of a body, since the head began or since the last piece of a body, never exceed
    the limit of a head.
    """

    def __init__(self, port: ReaderLimits) -> None:
        self._port = port
        self.lasting = True  # another request may follow
        self.deaf = False  # nothing more is read
        self._stranger = True  # no request was admitted yet
        self._parser = httptools.HttpRequestParser(self)
        self._request: HttpRequest | None = None  # whose head is being read
        self._entering: HttpRequest | None = None  # whose body is being read
        self._turned = False  # a request began or ended in the current piece
        self._goes_on = False  # a head began in an earlier piece
        self._raw = 0  # bytes since the piece in which the head began
        self._loose = 0  # of them, those since a piece with some of a body
        self._paced = 0  # bytes of the body when its deadline was last extended
        self._held = 0  # bytes of waiting requests, and of the body that is being read
        self._taken = 0  # requests in the current read
        self._waiting: deque[HttpRequest] = deque()
        self._response: ResponseWriter | None = None
        self._deadline = port.now + HEAD_TIME
        self._complete: HttpRequest | None = None  # the last one of the current read
        self._repeated: RepeatedHead | None = None  # that of `_pattern`
        self._pattern = HttpRequest()  # used again for each request with the repeated head

    @property
    def repeats(self) -> bool:
        """Whether a request with the last head would be taken without parsing it."""
        return self._repeated is not None

    def take(self, request: HttpRequest) -> None:
        """Handle it when it is its turn."""
        raise NotImplementedError

    def go_ahead(self) -> None:
        """Send `100 Continue`."""
        raise NotImplementedError

    def let_in(self) -> None:
        """A request of this peer was admitted, for the first time."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return
        self._taken = 0
        repeated = self._repeated
        if repeated is not None and self._response is None:
            body = repeated.body(data)
            if body is not None and self._repeat(self._pattern, body):
                return
        self._repeated = None
        if len(data) <= PIECE:
            starts = self._request is None and self._entering is None
            self._read(data)
            if starts:  # otherwise their first bytes belong to what came before
                self._remember(data)
        else:
            self._read_pieces(memoryview(data))
        self._complete = None  # an idle connection keeps no body

    def _read_pieces(self, rest: memoryview) -> None:
        while rest and not self.deaf:
            size = PIECE if self._entering is None else len(rest)
            self._read(rest[:size])
            rest = rest[size:]

    def _repeat(self, request: HttpRequest, body: bytes) -> bool:
        """Take a request with the head of an earlier one; False, and nothing done, if it has to be checked."""
        port = self._port
        if self._waiting or len(body) > port.body_bytes or not port.front.still_admits(request):
            return False
        self._deadline = NEVER
        request.body = body
        self.take(request)
        request.body = b""
        return True

    def _remember(self, data: bytes) -> None:
        """Keep the head of the request that these bytes were, if they were nothing else."""
        request = self._complete
        is_reading = self._request is not None or self._entering is not None
        if request is None or request.admitted is None or is_reading or self.deaf or self._waiting:
            return
        if request.refused is None and not any(name in request.headers for name in _UNUSUAL):
            self._repeated = RepeatedHead.of(data, request.size, request.lines)
            self._pattern = request
            request.body = b""

    def _read(self, piece: bytes | memoryview) -> None:
        self._turned = False
        self._goes_on = self._request is not None or len(piece) > HEAD_BYTES
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self.deaf = True  # stay with HTTP/1.1 and close after this response
            self.lasting = False
        except httptools.HttpParserCallbackError:
            log.exception("a request failed before it was handled")
            self._refuse_rest(self._current, OUR_FAULT)
        except httptools.HttpParserError:
            if not self.deaf:
                self._refuse_rest(self._current, Reply(400, b"bad request"))
        else:
            if self._turned:  # where in the piece is not known: counting starts with the next
                self._raw = self._loose = 0
            if not self._turned or self._entering is not None or self._request is not None:
                self._count(len(piece))

    @property
    def _current(self) -> HttpRequest:
        """The request that is being read; an empty one if none has begun."""
        return self._request or self._entering or HttpRequest()

    def _count(self, size: int) -> None:
        """Check the limits after a piece that did not just end a request."""
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

    def _pace(self, request: HttpRequest) -> None:
        if self._raw > HEAD_BYTES + (1 + FRAMING) * request.size:
            self._refuse_rest(request, _TOO_MANY_CHUNKS)
        elif self._turned or request.size - self._paced >= PACE:
            self._deadline = self._port.now + BODY_TIME
            self._paced = request.size

    @property
    def _is_next(self) -> bool:
        """Whether no other request is before the one that is being read."""
        return self._response is None and not self._waiting

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self.deaf:
            return
        self._request = HttpRequest()
        self._turned = True
        if self._is_next:
            self._deadline = self._port.now + HEAD_TIME

    def on_url(self, url: bytes) -> None:
        if self._request is not None:
            self._request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._request is not None:  # otherwise it belongs to a trailer
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
            request.refused = self._check_head(request)
        if request.refused is not None and _has_body(request):
            self._refuse_rest(request, request.refused)
            return
        self._entering = request
        if b"expect" in headers and self._is_next:
            self._let_go_on(request)

    def _let_go_on(self, request: HttpRequest) -> None:
        if request.refused is None and not request.old:
            self.go_ahead()

    def _check_head(self, request: HttpRequest) -> Reply | None:
        large = self._goes_on and request.head_size > HEAD_BYTES
        if large or request.lines > HEAD_LINES:
            return _HEAD_TOO_LARGE
        if (refused := self._port.front.admit(request)) is not None:
            return refused
        if self._stranger and not request.from_stranger:
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
        if not self._is_next and not self._may_hold(request, request.size + request.head_size):
            return
        request.close_body()
        self._complete = request
        self.take(request)

    def _refuse_rest(self, request: HttpRequest, reply: Reply) -> None:
        """Refuse this request when it is its turn, and read nothing more from this peer."""
        self._request = self._entering = None
        self.deaf = True
        request.keep_alive = False
        self._deadline = NEVER
        request.chunks.clear()
        self._hold(request, 0)
        request.refused = reply
        self.take(request)

    def _may_hold(self, request: HttpRequest, size: int) -> bool:
        """Record how many of its bytes wait here. Refuses it and returns False if that is too much."""
        self._hold(request, size)
        if self._held > self._port.body_bytes + HEAD_BYTES:
            self._refuse_rest(request, _TOO_MUCH)
        elif self._port.held > self._port.most_held and size > SMALL_BODY:
            self._refuse_rest(request, BUSY)
        else:
            return True
        return False

    def _hold(self, request: HttpRequest, size: int) -> None:
        more = size - request.counted
        request.counted = size
        self._held += more
        self._port.held += more


def _unreadable(request: HttpRequest, version: str) -> Reply | None:
    """Return the refusal of a request that uses HTTP features we do not support."""
    headers = request.headers
    if version not in ("1.1", "1.0"):
        return Reply(505, b"only HTTP/1.1 is supported")
    if b"transfer-encoding" in headers:
        if request.old:  # a proxy that counts bytes would see another end
            return Reply(400, b"HTTP/1.0 has no chunked transfer coding")
        if headers[b"transfer-encoding"].lower() != b"chunked":
            return Reply(501, b"the only supported transfer coding is chunked")
    if b"upgrade" in headers and _has_body(request):  # the parser would not read the body
        return Reply(501, b"upgrades are not supported: send this without Upgrade")
    expected = headers.get(b"expect", _GO_AHEAD).lower().split(b",")
    if any(item.strip() != _GO_AHEAD for item in expected) and not request.old:
        return Reply(417, b"the only supported expectation is 100-continue")
    return None


def _has_body(request: HttpRequest) -> bool:
    return b"transfer-encoding" in request.headers or (
        request.headers.get(b"content-length", b"0") != b"0"
    )
