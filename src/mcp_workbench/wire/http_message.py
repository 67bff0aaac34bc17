"""HTTP messages as values: a request as it came, and the bytes of a response."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from mcp_workbench.wire.envelope import one_line

SMALL = 512  # bytes of a body that came by themselves
HEAD_LINES = 128  # headers of a request
Pieces = list[bytes | bytearray]  # of a body, as they came
JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"

STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}


class Request:
    """A request. Names of headers are in lower case; those of a trailer are not kept."""

    method = b""
    target = b""  # as it came: nothing is decoded, nothing is put together from headers
    body = b""
    doubled: tuple[bytes, ...] = ()  # headers that came more than once; their values are joined
    size = 0  # of the body so far
    counted = 0  # bytes of it that are counted as waiting
    keep_alive = True
    old = False  # HTTP/1.0: it knows no chunks
    refused: Reply | None = None
    reply_headers = b""  # lines for every response to it
    admitted: Any = None  # what the front found out at the door

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.chunks: Pieces = []

    def add_header(self, name: bytes, value: bytes) -> None:
        """One more line. Doubled ones are joined by copying, and only as many as a head may have."""
        name = name.lower()
        if name in self.headers:
            if len(self.doubled) == HEAD_LINES:
                return
            self.doubled = (*self.doubled, name)
            value = b"%b, %b" % (self.headers[name], value)
        self.headers[name] = value

    def add_chunk(self, data: bytes) -> None:
        """Part of the body."""
        self.size += len(data)
        if self.chunks:
            add_piece(self.chunks, data)
        else:
            self.chunks.append(data)

    def close_body(self) -> None:
        """All of it is there."""
        chunks, self.chunks = self.chunks, []
        self.body = b"".join(chunks)  # one alone is not copied

    @property
    def lines(self) -> int:
        """How many headers there are; beyond HEAD_LINES those that are doubled may be more."""
        return len(self.headers) + len(self.doubled)

    @property
    def head_size(self) -> int:
        return len(self.target) + sum(len(n) + len(v) for n, v in self.headers.items())

    def path(self) -> bytes:
        return self.target.partition(b"?")[0]


def add_piece(pieces: Pieces, data: bytes) -> None:
    """Small pieces share a buffer: alone, each would cost more than it holds."""
    if not pieces or len(data) >= SMALL:
        pieces.append(data)
    elif isinstance(last := pieces[-1], bytearray):
        last += data
    else:
        pieces.append(bytearray(data))


class Reply(msgspec.Struct, frozen=True):
    """A whole response. `headers` are finished lines."""

    status: int
    body: bytes = b""
    headers: bytes = b""
    kind: bytes = TEXT


def plain_head(reply: Reply, common: bytes) -> bytes:
    """Everything in front of the body. `common` are lines that every response has."""
    if not reply.body:
        size = b"" if reply.status == HTTPStatus.NO_CONTENT else b"Content-Length: 0\r\n"
        return b"".join((STATUS_LINES[reply.status], common, reply.headers, size, b"\r\n"))
    return b"%b%bContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (
        STATUS_LINES[reply.status],
        common,
        reply.kind,
        len(reply.body),
        reply.headers,
    )


def stream_head(headers: bytes, common: bytes, *, chunked: bool) -> bytes:
    """The head of a response whose events are still to come; buffering proxies are asked not to."""
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


def event(data: bytes, id: bytes = b"", retry: int = 0) -> bytes:
    """One server-sent event. Line breaks between JSON tokens become spaces: they would end the data."""
    data = one_line(data.rstrip())
    lines = b"retry: %d\n" % retry if retry else b""
    if id:
        lines += b"id: %b\n" % id
    return b"%bdata: %b\n\n" % (lines, data)


COMMENT = b":\n\n"
