"""HTTP towards one origin: connections that are kept for a while, and nothing else remembered."""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from functools import lru_cache

from mcp_workbench.wire.addresses import Address, proxy_for
from mcp_workbench.wire.http_answer import Answer, Broken
from mcp_workbench.wire.http_wire import Wire

CONNECT = 15.0  # seconds to reach a server, its handshake included
KEPT = 4.0  # seconds that a connection idles: uvicorn and Node close after five, and a call that
# crosses with that is lost
MOST = 256  # connections to one server; long calls and streams hold one each
SPARE = 64  # of them kept while nobody needs them

BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CAUSES = {
    socket.EAI_NONAME: "its host name is not known",
    socket.EAI_AGAIN: "its host name can't be looked up now",
}


class HttpClient:
    """All connections to one server."""

    def __init__(self, address: Address, environ: Mapping[str, str], most: int = MOST) -> None:
        self.address = address
        self._most = most
        self.backlog = 0  # bytes accepted that the system did not take yet
        self._proxy = proxy_for(address, environ)
        self._tls = _tls_context(environ) if address.scheme == "https" else None
        self._spare: list[Wire] = []
        self._wires: set[Wire] = set()
        self._opening = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._shared = f"Host: {address.authority}\r\n".encode()
        if self._proxy is not None and address.scheme == "http":
            self._shared += _proxy_login(self._proxy)

    async def reach(self) -> None:
        """See that the server is there; the connection is kept for the first request."""
        self.freed(await self._open())

    async def send(
        self,
        start: bytes,
        headers: bytes,
        body: bytes = b"",
        *,
        patience: float | None = None,
        repeatable: bool = False,
    ) -> Answer:
        """Write a request and wait for the head of its answer, which the caller has to close.

        `start` is method and target, `headers` are whole lines. A repeatable request is written
        again if the connection was a kept one that the server had just given up.
        """
        length = b"Content-Length: %d\r\n\r\n" % len(body) if body else b"\r\n"
        method, _, target = start.partition(b" ")
        if self._proxy is not None and self._tls is None:
            target = self.address.origin.encode() + target
        head = b"%b %b HTTP/1.1\r\n%b%b%b" % (method, target, self._shared, headers, length)
        while True:
            wire = self._take() or await self._open(len(body))
            kept = wire.used
            answer = wire.ask(head, body)
            usable = False
            try:
                await answer.head(patience)
                usable = True
            except Broken as error:
                if not (kept and repeatable and not error.heard):
                    raise
            finally:
                if not usable:
                    answer.close()
            if usable:
                return answer

    def close(self) -> None:
        """End all connections at once."""
        self._closed = True
        for wire in tuple(self._wires):
            wire.close()
        for waiter in self._queue:
            waiter.cancel()

    # The pool

    def _take(self) -> Wire | None:
        while self._spare:
            wire = self._spare.pop()
            if wire.expiry is not None:
                wire.expiry.cancel()
                wire.expiry = None
            if wire.open:
                return wire
        return None

    async def _open(self, weight: int = 0) -> Wire:
        while len(self._wires) + self._opening >= self._most:
            wire = await self._turn(weight)
            if wire is not None:
                return wire
        self._opening += 1
        try:
            async with asyncio.timeout(CONNECT):
                wire = await self._connect()
        except TimeoutError:
            raise Broken(f"it can't be reached within {CONNECT:g} s", sent=False) from None
        except ssl.SSLCertVerificationError as error:
            raise Broken(_untrusted(error), sent=False) from None
        except ssl.SSLError as error:
            why = error.reason or "no common ground"
            raise Broken(f"its TLS handshake failed: {why}", sent=False) from None
        except OSError as error:
            raise Broken(_unreachable(error, self._proxy), sent=False) from None
        finally:
            self._opening -= 1
            self._next()  # whoever waits may try now
        self._wires.add(wire)
        return wire

    async def _turn(self, weight: int) -> Wire | None:
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

    def freed(self, wire: Wire) -> None:
        seconds = KEPT if wire.kept is None else wire.kept
        if self._closed or len(self._spare) >= SPARE or seconds <= 0:
            wire.close()
            return
        wire.expiry = asyncio.get_running_loop().call_later(seconds, wire.close)
        self._spare.append(wire)
        if self._queue:
            self._next()

    def lost(self, wire: Wire) -> None:
        self._wires.discard(wire)
        if wire in self._spare:
            self._spare.remove(wire)
        self._next()

    def weighed(self, bytes: int) -> None:
        self.backlog += bytes

    # Reaching the server

    async def _connect(self) -> Wire:
        loop = asyncio.get_running_loop()
        there = self._proxy or self.address
        direct_tls = self._tls if self._proxy is None else None
        name = self.address.host if direct_tls else None
        _, wire = await loop.create_connection(
            lambda: Wire(self), there.host, there.port, ssl=direct_tls, server_hostname=name
        )
        _keep_alive(wire.transport)
        if self._proxy is not None and self._tls is not None:
            await self._tunnel(wire, self._proxy, self._tls)
        return wire

    async def _tunnel(self, wire: Wire, proxy: Address, tls: ssl.SSLContext) -> None:
        """Ask the proxy for a way through, and speak TLS with the server behind it."""
        target = f"{self.address.host}:{self.address.port}".encode()
        head = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (target, target, _proxy_login(proxy))
        answer = wire.ask(head, tunnel=True)
        await answer.head(None)
        if not 200 <= answer.status < 300:
            wire.close()
            raise Broken(
                f"the proxy {proxy.origin} refused the way with {answer.status}", sent=False
            )
        await wire.encrypt(tls, self.address.host)


def _proxy_login(proxy: Address) -> bytes:
    if not proxy.user:
        return b""
    return b"Proxy-Authorization: Basic %b\r\n" % b64encode(proxy.user.encode())


def _keep_alive(transport: asyncio.Transport) -> None:
    """A stream may be silent for hours; a peer that vanished is noticed nevertheless."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """The system's authorities, and those that the environment names in one of the usual ways."""
    return _trusting(tuple((name, environ[name]) for name in BUNDLES if environ.get(name)))


@lru_cache(maxsize=8)  # reading the authorities takes some milliseconds
def _trusting(bundles: tuple[tuple[str, str], ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name, path in bundles:
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError):
            raise Broken(f"{name} names no file with certificates", sent=False) from None
    return context


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    return (
        f"its certificate is not trusted: {error.verify_message}; "
        "a private authority is named with SSL_CERT_FILE"
    )


def _unreachable(error: OSError, proxy: Address | None) -> str:
    whom = "" if proxy is None else f" (the proxy {proxy.origin})"
    if isinstance(error, socket.gaierror):
        return _CAUSES.get(error.errno or 0, "its host name can't be looked up") + whom
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens there{whom}"
    return f"it can't be reached: {error.strerror or error}{whom}"
