"""One connection over HTTP/1.1: a request written, its answer parsed, then the next."""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Protocol

import httptools

from mcp_workbench.wire.http_answer import Answer, Broken

HEAD_BYTES = 1 << 16  # of an answer's headers, interim ones included, and of its trailer
HEAD_LINES = 256
INTERIM = 16  # answers that only say that there will be one
PIECE = 1 << 13  # bytes of heads that are parsed before we count again
FRAMING = 8  # bytes of chunks' sizes and extensions for each byte that they carry
MARGIN = 1.0  # seconds that a connection is given up before its server does
_TIMEOUT = re.compile(r"timeout=(\d{1,6})")
JOINED = 1 << 16  # bytes of a body that are copied to go out with the head


class Keeper(Protocol):
    """Whoever takes back the wires that are free again."""

    def freed(self, wire: Wire) -> None: ...
    def lost(self, wire: Wire) -> None: ...
    def weighed(self, bytes: int) -> None: ...


class Unfit(Exception):
    """What the server sends has no end, or belongs to no request."""


class Wire(asyncio.Protocol):
    """One connection: an exchange at a time, in the order of HTTP/1.1.

    The parser joins whatever it has of an unfinished line. So bytes are counted as they come: those
    since the request, or the last piece that had some of a body, are never more than a head may have.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._answer: Answer | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._doubled = 0  # headers that came again
        self._ended = False  # the answer is complete
        self._heads = 0  # begun, of which only the last is the answer's
        self._raw = 0  # bytes since the request
        self._body = 0  # of them, those of the body
        self._seen = 0  # of the body, when we last counted
        self._loose = 0  # bytes since a piece that had some of the body
        self._interim = False
        self._begun = False  # the answer's own head has been read
        self._framed = False  # the answer says where it ends
        self._tunnelling = False
        self._reusable = False
        self._flowing = True
        self._heavy = 0  # bytes that the system did not take yet
        self._writing_paused = False
        self.used = False
        self.kept: float | None = None  # seconds that it may idle, where the server said so
        self.expiry: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise Broken("the connection is closed", sent=False)
        return self._transport

    def ask(self, head: bytes, body: bytes = b"", *, tunnel: bool = False) -> Answer:
        """Write a request; the answer follows."""
        self._answer = answer = Answer(self)
        self._heads = self._raw = self._body = self._seen = self._loose = 0
        self._begun = self._ended = False
        self._tunnelling = tunnel
        transport = self.transport
        self._weigh(len(body))
        transport.write(head + body if len(body) < JOINED else head)
        if len(body) >= JOINED:
            transport.write(body)
        if not self._writing_paused:
            self._weigh(0)
        return answer

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._weigh(0)

    def _weigh(self, weight: int) -> None:
        if weight != self._heavy:
            self._keeper.weighed(weight - self._heavy)
            self._heavy = weight

    def flow(self, *, going: bool) -> None:
        """Let the server wait, or go on."""
        if going == self._flowing or self._transport is None or self._transport.is_closing():
            return
        self._flowing = going
        if going:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        """Speak TLS from here on: a tunnel leads to the server."""
        self._answer = None
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(self.transport, self, tls, server_hostname=host)
        if secured is None:
            raise Broken("the connection was closed", sent=False)
        self._transport = secured
        self._parser = httptools.HttpResponseParser(self)

    def part(self, *, complete: bool) -> None:
        """Its exchange is over."""
        self._answer = None
        self.used = True
        if complete and self._reusable and self.open and not self._writing_paused:
            self._reusable = False
            self.flow(going=True)
            self._keeper.freed(self)
        else:
            self.close()

    def close(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
        if self._transport is not None:
            self._transport.abort()

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a stream's
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked: it can't be trusted any more
            self.close()
            return
        if len(data) <= PIECE:
            self._read(data)
            return
        rest = memoryview(data)
        while rest and self.open:
            size = len(rest) if self._body else PIECE
            self._read(rest[:size])
            rest = rest[size:]

    def _read(self, piece: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._broke("the server changed to another protocol")
        except httptools.HttpParserCallbackError as error:
            self._broke(f"the answer is not HTTP: {error.__context__ or error}")
        except httptools.HttpParserError as error:
            if not self._tunnelling:
                self._broke(f"the answer is not HTTP: {error}")
        if not self._ended:
            self._count(len(piece))

    def _count(self, size: int) -> None:
        self._raw += size
        self._loose = self._loose + size if self._body == self._seen else 0
        self._seen = self._body
        if self._loose > HEAD_BYTES or len(self._headers) > HEAD_LINES:
            self._broke("the answer is not HTTP: its head is too large")
        elif self._raw > HEAD_BYTES + (1 + FRAMING) * self._body:
            self._broke("the answer is not HTTP: too much of it is no body")

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._weigh(0)
        answer = self._answer
        if answer is not None:
            if answer.begun and not self._framed and exc is None:
                answer.finish()
            else:
                what = "the connection was reset" if exc else "the connection was closed"
                where = "in the middle of the answer" if answer.begun else "before the answer"
                answer.fail(Broken(f"{what} {where}", heard=answer.begun))
        self._keeper.lost(self)

    def _broke(self, message: str) -> None:
        if self._answer is not None:
            self._answer.fail(Broken(message, heard=True))
        self.close()

    # What the parser tells

    def on_message_begin(self) -> None:
        if self._ended:
            raise Unfit("a second answer")
        self._heads += 1
        if self._heads > INTERIM + 1:
            raise Unfit("too many interim answers")
        self._headers = {}
        self._doubled = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._begun:
            return  # a trailer's
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else self._joined(known, text)

    def _joined(self, known: str, text: str) -> str:
        self._doubled += 1
        if self._doubled > HEAD_LINES:
            raise Unfit("too many headers")
        return f"{known}, {text}"

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status < 200
        if self._interim or self._answer is None:
            return
        self._begun = True
        self._framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if "keep-alive" in self._headers:
            said = _TIMEOUT.search(self._headers["keep-alive"])
            self.kept = int(said[1]) - MARGIN if said else None
        self._answer.begin(status, self._headers)

    def on_body(self, data: bytes) -> None:
        self._body += len(data)
        if self._answer is not None:
            self._answer.push(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif self._answer is not None:
            self._ended = True
            self._reusable = self._parser.should_keep_alive()  # the parser forgets it afterwards
            self._answer.finish()
