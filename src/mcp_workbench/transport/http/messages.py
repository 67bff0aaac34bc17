"""HTTP messages: a request as received, the bytes of a response, and what writes them. No I/O."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from mcp_workbench.transport.json_text import (
    HUGE,
    DepthScan,
    InSteps,
    Pieces,
    joined,
    joined_in_steps,
    scanned,
)

SMALL = 512  # bytes; smaller pieces of a body share a buffer
HEAD_LINES = 128  # headers of a request
JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n", re.IGNORECASE)
_LONGEST_LENGTH = 12  # digits

# Those that we send. The enumeration of all in the standard library takes longer to load than this module.
_REASONS = {
    200: b"OK",
    202: b"Accepted",
    204: b"No Content",
    302: b"Found",
    303: b"See Other",
    304: b"Not Modified",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    406: b"Not Acceptable",
    408: b"Request Timeout",
    409: b"Conflict",
    411: b"Length Required",
    413: b"Request Entity Too Large",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    421: b"Misdirected Request",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}
NO_CONTENT = 204
STATUS_LINES = {status: b"HTTP/1.1 %d %b\r\n" % (status, why) for status, why in _REASONS.items()}


class RepeatedHead:
    """The head of an earlier message. Most peers repeat it, byte for byte but for the length of the body.

    A message with the same head needs no parser: it was parsed before.
    """

    __slots__ = ("_end", "_start")

    def __init__(self, start: bytes, end: bytes) -> None:
        self._start = start  # up to the digits of Content-Length
        self._end = end

    @classmethod
    def of(cls, data: bytes, body_size: int, lines: int) -> RepeatedHead | None:
        """The head of one whole message that the parser read from exactly these bytes.

        `lines` is the number of its headers. None if anything about it is unusual.
        """
        head = data[: len(data) - body_size]
        length = _LENGTH.search(head)
        if (
            length is None
            or head.find(b"\r\n\r\n") != len(head) - 4
            or not head.count(b"\n") == head.count(b"\r") == lines + 2
        ):
            return None
        return cls(head[: length.start(1)], head[length.end(1) :])

    def body(self, data: bytes) -> bytes | None:
        """The body, if these bytes are one whole message with this head."""
        start, end = self._start, self._end
        if not data.startswith(start):
            return None
        at = len(start)
        digits = data[at : data.find(b"\r", at, at + _LONGEST_LENGTH)]
        at += len(digits)
        if not digits.isdigit() or not data.startswith(end, at):
            return None
        at += len(end)
        return data[at:] if len(data) - at == int(digits) else None


class HttpRequest:
    """A request. Header names are in lower case; those of a trailer are not kept."""

    method = b""
    target = b""  # as received: nothing is decoded, nothing is derived from headers
    body = b""
    doubled: tuple[bytes, ...] = ()  # headers that occur more than once; their values are joined
    size = 0  # of the body so far
    counted = 0  # bytes of it that are counted as waiting
    keep_alive = True
    old = False  # HTTP/1.0, which has no chunks
    refused: Reply | None = None
    reply_headers = b""  # lines for every response to it
    admitted: Any = None  # what the front determined from the head
    from_stranger = False  # who sent it is not known yet, although it is admitted
    asked = False  # whether somebody was asked who sent it
    steps: Iterator[None] | None = None  # what is left to do before a huge body can be handled
    read: Any = None  # what the front has read of a huge body

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.chunks: Pieces = []
        self._scan: DepthScan | None = None  # of a long body

    def add_header(self, name: bytes, value: bytes) -> None:
        """Add a line. Repeated ones are joined by copying, at most as many as a head may have."""
        name = name.lower()
        if name in self.headers:
            if len(self.doubled) == HEAD_LINES:
                return
            self.doubled = (*self.doubled, name)
            value = b"%b, %b" % (self.headers[name], value)
        self.headers[name] = value

    def add_chunk(self, data: bytes) -> None:
        """Add a part of the body."""
        self.size += len(data)
        if self.chunks:
            add_piece(self.chunks, data)
        else:
            self.chunks.append(data)
        if self.size > HUGE:
            self._scan = scanned(self._scan, self.chunks, data)

    def close_body(self) -> None:
        """Join the body: all of it has arrived. A huge one is joined in `steps`."""
        scan, self._scan = self._scan, None
        if scan is None:
            self.body = joined(self.chunks, None)
        else:
            self.steps = self._joined(scan)

    def _joined(self, scan: DepthScan) -> InSteps[None]:
        self.body = yield from joined_in_steps(self.chunks, scan)

    def kept(self) -> HttpRequest:
        """Returns a copy that stays as it is when this object is used for the next request."""
        copied = HttpRequest.__new__(HttpRequest)
        copied.__dict__ = self.__dict__.copy()
        return copied

    @property
    def lines(self) -> int:
        """The number of headers; beyond HEAD_LINES repeated ones are no longer counted."""
        return len(self.headers) + len(self.doubled)

    @property
    def head_size(self) -> int:
        return len(self.target) + sum(len(n) + len(v) for n, v in self.headers.items())

    def path(self) -> bytes:
        return self.target.partition(b"?")[0]


def add_piece(pieces: Pieces, data: bytes) -> None:
    """Append a piece. Small ones share a buffer: an object for each would cost more than it holds."""
    if not pieces or len(data) >= SMALL:
        pieces.append(data)
    elif isinstance(last := pieces[-1], bytearray):
        last += data
    else:
        pieces.append(bytearray(data))


class Reply(msgspec.Struct, frozen=True):
    """A whole response. `headers` are complete lines."""

    status: int
    body: bytes = b""
    headers: bytes = b""
    kind: bytes = TEXT


def plain_head(reply: Reply, common: bytes) -> bytes:
    """Return everything before the body. `common` are lines that every response has."""
    if not reply.body:
        size = b"" if reply.status == NO_CONTENT else b"Content-Length: 0\r\n"
        return b"".join((STATUS_LINES[reply.status], common, reply.headers, size, b"\r\n"))
    return b"%b%bContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (
        STATUS_LINES[reply.status],
        common,
        reply.kind,
        len(reply.body),
        reply.headers,
    )


_JSON_RESPONSE = (
    b"HTTP/1.1 200 OK\r\n%bContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b"
)


def stream_head(headers: bytes, common: bytes, *, chunked: bool) -> bytes:
    """Return the head of an event stream; it asks proxies not to buffer."""
    return b"".join(
        (
            STATUS_LINES[200],
            common,
            b"Content-Type: text/event-stream\r\n",
            b"Cache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n",
            b"Transfer-Encoding: chunked\r\n" if chunked else b"",
            headers,
            b"\r\n",
        )
    )


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


# Header values

_SAFE = re.compile(r"[\x20-\x7e]*")
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")


def encode_value(text: str) -> str:
    """Return the text as a header value: as it is, or in base64 if it would not arrive unchanged."""
    if _SAFE.fullmatch(text) and text == text.strip() and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decode_value(value: bytes) -> str | None:
    """Return the text that a header value stands for; None if its base64 is invalid."""
    text = value.decode("latin-1").strip()
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return text
    try:
        plain = base64.b64decode(wrapped[1], validate=True)
        return plain.decode() if base64.b64encode(plain).decode() == wrapped[1] else None
    except (binascii.Error, ValueError):
        return None


# Writing a response

BACKLOG_BYTES = 8 << 20  # queued for a slow reader of a stream before it is disconnected
APART = 256 << 10  # bytes of a body that is not copied to stand behind its head


class ResponseConnection(Protocol):
    """The part of a connection that a response needs."""

    @property
    def date(self) -> bytes: ...  # the line for every head
    @property
    def lasting(self) -> bool: ...  # another request may follow
    @property
    def backlog(self) -> int: ...
    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...
    def answered(self, *, keep_alive: bool) -> None: ...


class ResponseWriter:
    """Writes the response to one request: whole, or as a stream of events. Afterwards it is inert."""

    __slots__ = (
        "_bodiless",
        "_connection",
        "_gone",
        "_headers",
        "_keep_alive",
        "_large",
        "_old",
        "streaming",
    )

    def __init__(self, connection: ResponseConnection, request: HttpRequest) -> None:
        self._connection: ResponseConnection | None = connection
        self._headers = request.reply_headers
        self._keep_alive = request.keep_alive
        self._old = request.old
        self._bodiless = request.method == b"HEAD"
        self._gone: Callable[[], None] | None = None
        self._large = 0  # bytes of the largest part that is queued, if it alone exceeds the backlog
        self.streaming = False

    @property
    def over(self) -> bool:
        """Whether the response is complete, or the peer is gone."""
        return self._connection is None

    def on_gone(self, act: Callable[[], None] | None) -> None:
        """Call `act` if the peer disconnects before the response is complete."""
        self._gone = act

    def plain(self, reply: Reply) -> None:
        """Send the whole response in one write."""
        connection = self._connection
        if connection is None or self.streaming:
            return
        head = plain_head(reply, self._common(connection))
        if not self._bodiless and len(reply.body) > APART:
            connection.write(head)
            head = reply.body
        elif not self._bodiless:
            head += reply.body
        connection.write(head)
        self._finish(connection)

    def json(self, body: bytes, headers: bytes = b"") -> None:
        """Send a whole JSON response with status 200 in one write."""
        connection = self._connection
        if connection is None or self.streaming:
            return
        if self._bodiless:
            self.plain(Reply(200, body, headers, JSON))
            return
        size, apart = len(body), len(body) > APART
        text = b"" if apart else body
        connection.write(_JSON_RESPONSE % (self._common(connection), size, headers, text))
        if apart:
            connection.write(body)
        self._finish(connection)

    def stream(self, headers: bytes = b"") -> None:
        """Start a stream of events."""
        connection = self._connection
        if connection is None or self.streaming:
            return
        connection.write(stream_head(headers, self._common(connection), chunked=not self._old))
        if self._bodiless:
            self._finish(connection)
            return
        self.streaming = True

    def send(self, data: bytes) -> None:
        """Send a part of the stream. A reader that is far behind is disconnected.

        Two parts may be larger than the backlog: what counts is how much waits behind them.
        """
        connection = self._connection
        if connection is None:
            return
        if connection.backlog <= BACKLOG_BYTES:
            self._large = 0
        elif connection.backlog > BACKLOG_BYTES + 2 * self._large:
            connection.abort()
            return
        if len(data) <= APART:
            connection.write(data if self._old else chunk(data))
            return
        if len(data) > BACKLOG_BYTES:
            self._large = max(self._large, len(data))
        if self._old:
            connection.write(data)
        else:  # not copied, as the body of a whole response
            connection.write(b"%x\r\n" % len(data))
            connection.write(data)
            connection.write(b"\r\n")

    def end(self) -> None:
        """End the stream."""
        connection = self._connection
        if connection is None or not self.streaming:
            return
        if not self._old:
            connection.write(LAST_CHUNK)
        self._finish(connection)

    # A response that another process has written, head and all

    @property
    def backlog(self) -> int:
        """Bytes that the peer has not read."""
        return 0 if self._connection is None else self._connection.backlog

    def relay(self, data: bytes) -> None:
        """Send a part of it as it is."""
        if self._connection is not None:
            self._connection.write(data)

    def relayed(self, *, keep_alive: bool) -> None:
        """It is complete."""
        connection = self._connection
        if connection is not None:
            self._keep_alive = keep_alive
            self._finish(connection)

    def abort(self) -> None:
        """Disconnect the peer: what it has is not complete."""
        if self._connection is not None:
            self._connection.abort()

    def lost(self) -> None:
        """The peer has disconnected."""
        self._connection = None
        if self._gone is not None:
            self._gone()

    def _common(self, connection: ResponseConnection) -> bytes:
        self._keep_alive = self._keep_alive and connection.lasting
        if self._keep_alive and not self._headers:
            return connection.date
        close = b"" if self._keep_alive else b"Connection: close\r\n"
        return b"%b%b%b" % (connection.date, close, self._headers)

    def _finish(self, connection: ResponseConnection) -> None:
        self._connection = None
        connection.answered(keep_alive=self._keep_alive)
