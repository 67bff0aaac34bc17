"""HTTP/1.1 client for one origin: a pool of connections, each with one exchange at a time."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

import httptools

from mcp_workbench.transport.http.client_response import ClientResponse, ExchangeFailed
from mcp_workbench.transport.http.messages import RepeatedHead
from mcp_workbench.transport.http.resolver import Resolver
from mcp_workbench.transport.http.urls import Url, proxy_for
from mcp_workbench.transport.stdio import JoinedWrites

CONNECT = 15.0  # seconds to connect, TLS handshake included
KEPT = 4.0  # seconds that a connection may idle: uvicorn and Node close after five, and a request
# that is sent at that moment is lost
MOST = 256  # connections to one server; long calls and streams hold one each
SPARE = 64  # idle ones among them
HEAD_BYTES = 1 << 16  # of a response's headers, interim ones included, and of its trailer
HEAD_LINES = 256
INTERIM = 16  # 1xx responses before the final one
PIECE = 1 << 13  # bytes of heads that are parsed between two checks of the limits
FRAMING = 8  # bytes of chunk sizes and extensions allowed for each byte of content
FEW = 4  # exchanges in flight
MARGIN = 1.0  # seconds by which we close a connection before its server does
JOINED = 1 << 16  # bytes; a shorter body is copied to be written together with the head
_TIMEOUT = re.compile(r"timeout=(\d{1,6})")

NOT_YET_VALID, EXPIRED = 9, 10  # X509_V_ERR of OpenSSL

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class BlockedAddress(ExchangeFailed):
    """A name that the network gave leads to an address that only the operator may name."""


class HttpClient:
    """The pool of connections to one server."""

    def __init__(
        self,
        address: Url,
        environ: Mapping[str, str],
        most: int = MOST,
        allows: Callable[[str], bool] | None = None,
    ) -> None:
        self.address = address
        self._most = most
        self._allows = allows  # IP addresses that may be connected to; None: all
        self.backlog = 0  # bytes accepted and not yet passed to the system
        self._proxy = proxy_for(address, environ)
        self._tls = _tls_context(environ) if address.scheme == "https" else None
        self._spare: list[ClientConnection] = []
        self._connections: set[ClientConnection] = set()
        self._opening = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._writes = JoinedWrites.of(self._loop)
        self._timer: asyncio.TimerHandle | None = None  # closes connections that idle
        self._shared = f"Host: {address.authority}\r\n".encode()
        if self._proxy is not None and address.scheme == "http":
            self._shared += _proxy_login(self._proxy)

    async def reach(self) -> None:
        """Connect to the server; the connection is kept for the first request."""
        self.freed(await self._open())

    async def send(
        self,
        start: bytes,
        headers: bytes,
        body: bytes = b"",
        *,
        patience: float | None = None,
        repeatable: bool = False,
    ) -> ClientResponse:
        """Send a request and wait for the head of its response, which the caller has to close.

        `start` is method and target, `headers` are complete lines. A repeatable request is sent
        again if the server closed an idle connection at that moment.
        """
        length = b"Content-Length: %d\r\n\r\n" % len(body) if body else b"\r\n"
        head = self.head(start, headers) + length
        while True:
            connection = self._take() or await self._open(len(body))
            kept = connection.used
            response = connection.ask(head, body)
            try:
                return await self.answered(response, patience)
            except ExchangeFailed as error:
                if not (kept and repeatable and not error.heard):
                    raise

    def head(self, start: bytes, headers: bytes) -> bytes:
        """The head of a request up to its Content-Length. `start` is method and target."""
        method, _, target = start.partition(b" ")
        if self._proxy is not None and self._tls is None:
            target = self.address.origin.encode() + target
        return b"%b %b HTTP/1.1\r\n%b%b" % (method, target, self._shared, headers)

    def send_now(self, head: bytes, body: bytes) -> ClientResponse | None:
        """Send a request on a connection that is free; None, and nothing done, if there is none.

        The response has not arrived yet (see `answered`); the caller has to close it.
        """
        connection = self._take()
        if connection is None:
            return None
        return connection.ask(b"%bContent-Length: %d\r\n\r\n" % (head, len(body)), body)

    async def answered(self, response: ClientResponse, patience: float | None) -> ClientResponse:
        """Wait for the head of a response. If there will be none, it is closed."""
        usable = False
        try:
            await response.head(patience)
            usable = True
        finally:
            if not usable:
                response.close()
        return response

    def close(self) -> None:
        """End all connections at once."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self._connections):
            connection.close()
        for waiter in self._queue:
            waiter.cancel()

    # The pool

    def _take(self) -> ClientConnection | None:
        now = self._loop.time()
        while self._spare:
            connection = self._spare.pop()
            if connection.open and connection.kept_until > now:
                return connection
            connection.close()
        return None

    async def _open(self, weight: int = 0) -> ClientConnection:
        while len(self._connections) + self._opening >= self._most:
            connection = await self._turn(weight)
            if connection is not None:
                return connection
        self._opening += 1
        try:
            async with asyncio.timeout(CONNECT):
                connection = await self._connect()
        except TimeoutError:
            raise ExchangeFailed(f"no connection within {CONNECT:g} s", sent=False) from None
        except ssl.SSLCertVerificationError as error:
            raise ExchangeFailed(_untrusted(error), sent=False) from None
        except ssl.SSLError as error:
            why = error.reason or error
            raise ExchangeFailed(f"its TLS handshake failed: {why}", sent=False) from None
        except OSError as error:
            raise ExchangeFailed(
                _unreachable(error, self._proxy or self.address), sent=False
            ) from None
        finally:
            self._opening -= 1
            self._next()  # a waiting request may try now
        self._connections.add(connection)
        return connection

    async def _turn(self, weight: int) -> ClientConnection | None:
        """Wait until a connection is free or may be opened."""
        waiter = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        self.backlog += weight
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done():
                self._next()  # its turn goes to another
            raise
        finally:
            self.backlog -= weight
            if waiter in self._queue:
                self._queue.remove(waiter)
        return self._take()

    def _next(self) -> None:
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def received(self) -> None:
        """A response arrives. With many in flight, it pays to join what is written because of them."""
        if len(self._connections) - len(self._spare) > FEW:
            self._writes.join(self._loop)

    def freed(self, connection: ClientConnection) -> None:
        seconds = KEPT if connection.kept is None else connection.kept
        if self._closed or len(self._spare) >= SPARE or seconds <= 0:
            connection.close()
            return
        connection.kept_until = self._loop.time() + seconds
        self._spare.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._close_expired)
        if self._queue:
            self._next()

    def _close_expired(self) -> None:
        """Close the connections that have idled long enough; one timer serves them all."""
        self._timer = None
        now = self._loop.time()
        for connection in [spare for spare in self._spare if spare.kept_until <= now]:
            self._spare.remove(connection)
            connection.close()
        if self._spare:
            soonest = min(connection.kept_until for connection in self._spare)
            self._timer = self._loop.call_at(soonest, self._close_expired)

    def lost(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        if connection in self._spare:
            self._spare.remove(connection)
        self._next()

    def weighed(self, bytes: int) -> None:
        self.backlog += bytes

    # Connecting

    async def _connect(self) -> ClientConnection:
        peer = self._proxy or self.address
        addresses = await Resolver.of(self._loop).addresses(peer.host)
        if self._allows is not None and self._proxy is None:
            if not addresses or not all(map(self._allows, addresses)):
                reason = f"{peer.host} is no address on the public internet"
                raise BlockedAddress(reason, sent=False)
            addresses = addresses[:1]  # connected to as it was checked
        connection = await self._reach(addresses, peer.port)
        _keep_alive(connection.transport)
        if self._proxy is not None and self._tls is not None:
            await self._tunnel(connection, self._proxy, self._tls)
        return connection

    async def _reach(self, addresses: list[str], port: int) -> ClientConnection:
        """Connect to the first of these addresses that answers."""
        tls = self._tls if self._proxy is None else None
        name = self.address.host if tls else None
        for number, address in enumerate(addresses, 1):
            try:
                _, connection = await self._loop.create_connection(
                    lambda: ClientConnection(self), address, port, ssl=tls, server_hostname=name
                )
            except OSError as error:
                if number == len(addresses) or isinstance(error, ssl.SSLError):
                    raise
            else:
                return connection
        raise socket.gaierror(socket.EAI_NONAME, "it has no address")

    async def _tunnel(self, connection: ClientConnection, proxy: Url, tls: ssl.SSLContext) -> None:
        """Open a tunnel through the proxy, and start TLS with the server behind it."""
        target = f"{self.address.host}:{self.address.port}".encode()
        head = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (target, target, _proxy_login(proxy))
        response = connection.ask(head, tunnel=True)
        await response.head(None)
        if not 200 <= response.status < 300:
            connection.close()
            raise ExchangeFailed(
                f"the proxy {proxy.origin} refused to connect (HTTP {response.status})", sent=False
            )
        await connection.encrypt(tls, self.address.host)


def _proxy_login(proxy: Url) -> bytes:
    if not proxy.user:
        return b""
    return b"Proxy-Authorization: Basic %b\r\n" % b64encode(proxy.user.encode())


def _keep_alive(transport: asyncio.Transport) -> None:
    """Enable TCP keep-alive: a stream may be silent for hours, and a dead peer must be noticed."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Trust the system's authorities, and those named in one of the usual variables."""
    return _trusting(tuple((name, environ[name]) for name in BUNDLES if environ.get(name)))


@lru_cache(maxsize=8)  # loading the authorities takes some milliseconds
def _trusting(bundles: tuple[tuple[str, str], ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name, path in bundles:
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError):
            raise ExchangeFailed(f"{name} is not a file with certificates", sent=False) from None
    return context


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (NOT_YET_VALID, EXPIRED):
        return f"{error.verify_message}: check that the clock of this machine is right"
    return (
        f"its certificate is not trusted: {error.verify_message}; "
        "set SSL_CERT_FILE to trust a private authority"
    )


def _unreachable(error: OSError, peer: Url) -> str:
    if isinstance(error, socket.gaierror):
        temporary = " (temporary failure)" if error.errno == socket.EAI_AGAIN else ""
        return f"can't resolve {peer.host}{temporary}"
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused by {peer.host}:{peer.port}"
    return f"can't connect to {peer.host}:{peer.port}: {error.strerror or error}"


class ConnectionOwner(Protocol):
    """What a connection reports to its pool."""

    def received(self) -> None: ...
    def freed(self, connection: ClientConnection) -> None: ...
    def lost(self, connection: ClientConnection) -> None: ...
    def weighed(self, bytes: int) -> None: ...


class BadResponse(Exception):
    """The response exceeds a limit, or belongs to no request."""


class ClientConnection(asyncio.Protocol):
    """One connection: a request is sent, its response parsed, then the next.

    The parser buffers an unfinished line without a limit. So bytes are counted as they arrive: those
    since the request, or since the last piece with some of a body, never exceed the limit of a head.
    """

    def __init__(self, pool: ConnectionOwner) -> None:
        self._pool = pool
        self._response: ClientResponse | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._doubled = 0  # repeated headers
        self._ended = False  # the response is complete
        self._heads = 0  # begun; all but the last are interim
        self._raw = 0  # bytes since the request
        self._body = 0  # of them, those of the body
        self._seen = 0  # of the body, at the last check
        self._loose = 0  # bytes since a piece with some of the body
        self._interim = False
        self._begun = False  # the final head has been read
        self._framed = False  # the response says where it ends
        self._tunnelling = False
        self._reusable = False
        self._flowing = True
        self._heavy = 0  # bytes not yet passed to the system
        self._writing_paused = False
        self.used = False
        self.kept: float | None = None  # seconds that it may idle, if the server announced it
        self.kept_until = 0.0  # when it is closed if nobody uses it
        self._plain_size: int | None = None  # of the body, once it is complete
        self._repeated: RepeatedHead | None = None  # of a response with these headers:
        self._repeated_headers: Mapping[str, str] = {}
        self._repeats_plain = False

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise ExchangeFailed("the connection is closed", sent=False)
        return self._transport

    def ask(self, head: bytes, body: bytes = b"", *, tunnel: bool = False) -> ClientResponse:
        """Send a request and return its response, which has not arrived yet."""
        self._response = response = ClientResponse(self)
        self._heads = self._raw = self._body = self._seen = self._loose = 0
        self._begun = self._ended = False
        self._plain_size = None
        self._tunnelling = tunnel
        transport = self.transport
        if len(body) < JOINED:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        if self._writing_paused:
            self._weigh(len(body))
        return response

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._weigh(0)

    def _weigh(self, weight: int) -> None:
        if weight != self._heavy:
            self._pool.weighed(weight - self._heavy)
            self._heavy = weight

    def flow(self, *, going: bool) -> None:
        """Pause or resume reading."""
        if going == self._flowing or self._transport is None or self._transport.is_closing():
            return
        self._flowing = going
        if going:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    async def encrypt(self, tls: ssl.SSLContext, host: str) -> None:
        """Start TLS: the tunnel to the server is open."""
        self._response = None
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(self.transport, self, tls, server_hostname=host)
        if secured is None:
            raise ExchangeFailed("the connection was closed", sent=False)
        self._transport = secured
        self._parser = httptools.HttpResponseParser(self)

    def part(self, *, complete: bool) -> None:
        """Finish the exchange: return to the pool, or close."""
        self._response = None
        self.used = True
        if complete and self._reusable and self.open and not self._writing_paused:
            self._reusable = False
            if not self._flowing:
                self.flow(going=True)
            self._pool.freed(self)
        else:
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue] - a stream's
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:  # unsolicited bytes: it can't be trusted any more
            self.close()
            return
        self._pool.received()
        is_first = self._raw == 0 and not self._ended
        if is_first and self._repeated is not None:
            body = self._repeated.body(data)
            if body is not None:
                self._ended = self._reusable = True
                response.arrived(self._repeated_headers, body, is_plain=self._repeats_plain)
                return
        self._repeated = None
        if len(data) <= PIECE:
            self._read(data)
            if is_first:
                self._remember(data, response)
            return
        rest = memoryview(data)
        while rest and self.open:
            size = len(rest) if self._body else PIECE
            self._read(rest[:size])
            rest = rest[size:]

    def _remember(self, data: bytes, response: ClientResponse) -> None:
        """Keep the head of the response that these bytes were, if they were exactly one with status 200."""
        body_size = self._plain_size
        if body_size is not None and response.status == 200:
            self._repeated = RepeatedHead.of(data, body_size, len(response.headers))
            self._repeated_headers = response.headers
            self._repeats_plain = response.is_plain

    def _read(self, piece: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._fail("the server switched to another protocol")
        except httptools.HttpParserCallbackError as error:
            self._fail(f"the response is not HTTP: {error.__context__ or error}")
        except httptools.HttpParserError as error:
            if not self._tunnelling:
                self._fail(f"the response is not HTTP: {error}")
        if not self._ended:
            self._count(len(piece))

    def _count(self, size: int) -> None:
        self._raw += size
        self._loose = self._loose + size if self._body == self._seen else 0
        self._seen = self._body
        if self._loose > HEAD_BYTES or len(self._headers) > HEAD_LINES:
            self._fail("the response is not HTTP: its head is too large")
        elif self._raw > HEAD_BYTES + (1 + FRAMING) * self._body:
            self._fail("the response is not HTTP: too much framing")

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._weigh(0)
        response = self._response
        if response is not None:
            if response.begun and not self._framed and exc is None:
                response.finish()
            else:
                what = "the connection was reset" if exc else "the connection was closed"
                where = "in the middle of the response" if response.begun else "before the response"
                response.fail(ExchangeFailed(f"{what} {where}", heard=response.begun))
        self._pool.lost(self)

    def _fail(self, message: str) -> None:
        if self._response is not None:
            self._response.fail(ExchangeFailed(message, heard=True))
        self.close()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._ended:
            raise BadResponse("a second response")
        self._heads += 1
        if self._heads > INTERIM + 1:
            raise BadResponse("too many interim responses")
        self._headers = {}
        self._doubled = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._begun:
            return  # of a trailer
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else self._joined(known, text)

    def _joined(self, known: str, text: str) -> str:
        self._doubled += 1
        if self._doubled > HEAD_LINES:
            raise BadResponse("too many headers")
        return f"{known}, {text}"

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status < 200
        if self._interim or self._response is None:
            return
        self._begun = True
        self._framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if "keep-alive" in self._headers:
            timeout = _TIMEOUT.search(self._headers["keep-alive"])
            self.kept = int(timeout[1]) - MARGIN if timeout else None
        self._response.begin(status, self._headers)

    def on_body(self, data: bytes) -> None:
        self._body += len(data)
        if self._response is not None:
            self._response.push(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif self._response is not None:
            self._ended = True
            self._reusable = self._parser.should_keep_alive()  # the parser forgets it afterwards
            is_plain = self._heads == 1 and not self._doubled
            if self._reusable and is_plain and "transfer-encoding" not in self._headers:
                self._plain_size = self._body
            self._response.finish()
