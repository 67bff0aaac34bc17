"""Requests to addresses that a server or its metadata named.

An address that the network names must be public, or have an origin that the operator wrote: that of the server
itself, or one of `auth.allowedOrigins`. Bodies, redirects and time are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from mcp_workbench.protocol.handshake import IMPLEMENTATION
from mcp_workbench.protocol.oauth import SignInFailed
from mcp_workbench.protocol.oauth_tokens import secrets_in
from mcp_workbench.timing import deadline
from mcp_workbench.transport.http.addresses import is_public
from mcp_workbench.transport.http.client import BlockedAddress, HttpClient
from mcp_workbench.transport.http.client_response import ClientResponse, ExchangeFailed
from mcp_workbench.transport.http.urls import BadUrl, Url, parse_url, proxy_for

LARGEST = 1 << 18  # bytes of a document
PATIENCE = deadline(15.0)  # seconds for one request
LONGEST_URL = 8192  # characters
HOPS = 3
REDIRECTS = (301, 302, 307, 308)
_USER_AGENT = f"User-Agent: {IMPLEMENTATION['name']}/{IMPLEMENTATION['version']}\r\n".encode()
_JSON = b"Accept: application/json\r\n"


class Fetched(msgspec.Struct, frozen=True):
    """The status and the body of a response."""

    status: int
    body: bytes = b""
    location: str = ""
    challenge: str = ""
    secrets: dict[str, str] = {}  # that were sent: the response may repeat them

    def __repr__(self) -> str:
        return f"Fetched({self.status})"

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Outgoing:
    """Sends requests on behalf of one server's sign-in."""

    def __init__(self, trusted: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self._trusted = trusted  # origins that the operator wrote; `:*` stands for any port
        self._environ = environ
        self.date = ""  # of the last response, by the clock of its server

    async def get(self, url: str) -> Fetched:
        """Fetch a document. Raises SignInFailed."""
        address = self.checked(url)
        reply = await self._send(b"GET", address, _JSON, b"")
        for _ in range(HOPS):
            if reply.status not in REDIRECTS:
                break
            try:
                target = address.joined(reply.location)
            except BadUrl:
                break
            if not target.same_origin(address):
                break
            reply = await self._send(b"GET", target, _JSON, b"")
        return reply

    async def post(self, url: str, headers: bytes, body: bytes, kind: str) -> Fetched:
        """Send a form or a document. Raises SignInFailed. Redirects are not followed."""
        address = self.checked(url)
        lines = _JSON + b"Content-Type: %b\r\n" % kind.encode() + headers
        reply = await self._send(b"POST", address, lines, body)
        return msgspec.structs.replace(reply, secrets=secrets_in(headers, body))

    async def ask(self, url: str, body: bytes) -> Fetched:
        """Send a message of MCP without credentials, to see what the server wants."""
        headers = (
            b"Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        )
        return await self._send(b"POST", self.checked(url), headers, body)

    def checked(self, url: str) -> Url:
        """The address, if it may be used. Raises SignInFailed."""
        try:
            address = parse_url(url[: LONGEST_URL + 1])
        except BadUrl:
            address = None
        if address is None or len(url) > LONGEST_URL:
            raise SignInFailed(
                "WB-AUTH-005", "the server's sign-in metadata has an address that is none"
            )
        if address.user or "#" in url:
            raise _blocked(address, "has a user name or a fragment in it")
        if self.is_trusted(address):
            return address
        if address.scheme != "https":
            raise _blocked(address, "is not https")
        # A proxy resolves names by itself: what can be checked here is an address without a name.
        proxied = proxy_for(address, self._environ) is not None
        if proxied and _is_literal(address.host) and not is_public(address.host):
            raise _blocked(address, "is not on the public internet")
        return address

    def shown(self, url: str) -> str:
        """An address for a person and a browser, in characters that no terminal obeys. Raises SignInFailed."""
        address = self.checked(url)
        return f"{address.origin}{address.target}"

    def is_trusted(self, address: Url) -> bool:
        origin = address.origin.lower()
        name = f"{address.scheme}://{address.host}:*".lower()
        return any(each.lower().rstrip("/") in (origin, name) for each in self._trusted)

    async def _send(self, method: bytes, address: Url, headers: bytes, body: bytes) -> Fetched:
        allows = None if self.is_trusted(address) else is_public
        client = HttpClient(address, self._environ, allows=allows)
        try:
            async with asyncio.timeout(PATIENCE):
                response = await client.send(
                    b"%b %b" % (method, address.target.encode()), _USER_AGENT + headers, body
                )
                self.date = response.headers.get("date", "")
                try:
                    return await _read(response)
                finally:
                    response.close()
        except BlockedAddress:
            raise _blocked(address, "is not on the public internet") from None
        except TimeoutError:
            raise _unreachable(address, f"no answer within {PATIENCE:g} s") from None
        except ExchangeFailed as error:
            raise _unreachable(address, str(error)) from None
        finally:
            client.close()


async def _read(response: ClientResponse) -> Fetched:
    given = response.headers
    if (
        response.content_type == "text/event-stream"
    ):  # an answer without credentials: it may never end
        return Fetched(response.status)
    body = await response.whole(LARGEST)
    return Fetched(
        response.status, body, given.get("location", ""), given.get("www-authenticate", "")
    )


def _is_literal(host: str) -> bool:
    """Is this an address, in any form that a resolver takes, or a name of the machine itself?"""
    last = host.rstrip(".").rpartition(".")[2]
    return ":" in host or last.isdigit() or last.startswith("0x") or last == "localhost"


def _blocked(address: Url, why: str) -> SignInFailed:
    return SignInFailed(
        "WB-AUTH-010",
        f"blocked_address: the server sends us to {address.origin}, which {why}; if it is yours, write "
        f'"auth": {{"allowedOrigins": ["{address.origin}"]}} in the server\'s entry',
    )


def _unreachable(address: Url, why: str) -> SignInFailed:
    return SignInFailed(
        "WB-AUTH-004", f"{address.origin} can't be reached: {why}; check the network, and try again"
    )
