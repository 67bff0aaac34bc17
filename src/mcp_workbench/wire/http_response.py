"""The answer to one request of a host over HTTP, and what carries it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mcp_workbench.wire.http_message import (
    LAST_CHUNK,
    Reply,
    Request,
    chunk,
    plain_head,
    stream_head,
)

BACKLOG_BYTES = 8 << 20  # waiting for a slow reader of a stream before it is cut off


class Carrier(Protocol):
    """A connection as its responses see it."""

    @property
    def date(self) -> bytes: ...  # the line for every head
    @property
    def lasting(self) -> bool: ...  # another request may follow
    @property
    def backlog(self) -> int: ...
    def write(self, data: bytes) -> None: ...
    def abort(self) -> None: ...
    def answered(self, *, keep_alive: bool) -> None: ...


class Response:
    """The answer to one request: in one piece, or as a stream of events. Afterwards it is inert."""

    __slots__ = (
        "_bodiless",
        "_connection",
        "_gone",
        "_headers",
        "_keep_alive",
        "_old",
        "streaming",
    )

    def __init__(self, connection: Carrier, request: Request) -> None:
        self._connection: Carrier | None = connection
        self._headers = request.reply_headers
        self._keep_alive = request.keep_alive
        self._old = request.old
        self._bodiless = request.method == b"HEAD"
        self._gone: Callable[[], None] | None = None
        self.streaming = False

    @property
    def over(self) -> bool:
        """Answered, or nobody is there any more."""
        return self._connection is None

    def on_gone(self, act: Callable[[], None] | None) -> None:
        """Be told if the peer leaves before the answer is complete."""
        self._gone = act

    def plain(self, reply: Reply) -> None:
        """The whole answer in one write."""
        connection = self._connection
        if connection is None or self.streaming:
            return
        head = plain_head(reply, self._common(connection))
        connection.write(head if self._bodiless else head + reply.body)
        self._finish(connection)

    def stream(self, headers: bytes = b"") -> None:
        """Begin a stream of events."""
        connection = self._connection
        if connection is None or self.streaming:
            return
        self.streaming = True
        connection.write(stream_head(headers, self._common(connection), chunked=not self._old))

    def send(self, data: bytes) -> None:
        """A part of the stream. A reader that is far behind is cut off, not waited for."""
        connection = self._connection
        if connection is None:
            return
        if connection.backlog > BACKLOG_BYTES:
            connection.abort()
            return
        connection.write(data if self._old else chunk(data))

    def end(self) -> None:
        """The end of a stream."""
        connection = self._connection
        if connection is None or not self.streaming:
            return
        if not self._old:
            connection.write(LAST_CHUNK)
        self._finish(connection)

    def lost(self) -> None:
        """The peer has left."""
        self._connection = None
        if self._gone is not None:
            self._gone()

    def _common(self, connection: Carrier) -> bytes:
        self._keep_alive = self._keep_alive and connection.lasting
        if self._keep_alive and not self._headers:
            return connection.date
        close = b"" if self._keep_alive else b"Connection: close\r\n"
        return b"%b%b%b" % (connection.date, close, self._headers)

    def _finish(self, connection: Carrier) -> None:
        self._connection = None
        connection.answered(keep_alive=self._keep_alive)
