"""Requests to the issuer: its metadata, its keys, and what it knows of a token.

The operator wrote the issuer's address. What its metadata names has to be of the same origin; another
address is asked only if the configuration names it. No redirect is followed.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode

import msgspec

from mcp_workbench.core.spec import Introspection, IssuerSettings
from mcp_workbench.timing import deadline
from mcp_workbench.transport.http.client import HttpClient
from mcp_workbench.transport.http.client_response import ExchangeFailed
from mcp_workbench.transport.http.urls import BadUrl, Url, parse_url

ANSWER_TIME = deadline(10.0)  # seconds for one whole exchange
MOST_BYTES = 256 << 10  # of an answer; a large set of keys has 20 KiB
CONNECTIONS = 8  # to one origin

_ACCEPT = b"Accept: application/json\r\n"
_FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


class IssuerUnavailable(Exception):
    """The issuer gave no usable answer; the message says why, without a token."""


class _NotThere(IssuerUnavailable):
    """There is nothing at this address."""


class _BadRequest(_NotThere):
    """The issuer does not like the request itself."""


class _Metadata(msgspec.Struct, frozen=True):
    """What we need of RFC 8414 and OpenID Connect Discovery."""

    issuer: str = ""
    jwks_uri: str = ""
    introspection_endpoint: str = ""


_FAILURES = {400: _BadRequest, 404: _NotThere, 405: _NotThere, 410: _NotThere}


class Issuer:
    """The authorization server, as a peer."""

    def __init__(self, settings: IssuerSettings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._clients: dict[str, HttpClient] = {}  # by origin
        self._metadata: _Metadata | None = None

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    async def keys(self) -> bytes:
        """The issuer's keys as it publishes them. Raises IssuerUnavailable."""
        configured = self._settings.jwks_uri
        if configured:
            return await self._fetch(parse_url(configured))
        self._metadata = None  # as old as the keys
        learned = (await self._discovered()).jwks_uri
        return await self._fetch(self._same_origin(learned, "jwks_uri", "jwksUri"))

    async def introspect(self, token: str, asking: Introspection) -> bytes:
        """What the issuer says of this token. Raises IssuerUnavailable."""
        url = await self._introspection_url(asking)
        login = f"{quote(asking.client_id, safe='')}:{quote(asking.client_secret, safe='')}"
        headers = b"Authorization: Basic %b\r\n%b" % (b64encode(login.encode()), _FORM)
        form = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        try:
            return await self._fetch(url, headers, form)
        except _BadRequest:
            return b"{}"  # of all that it could be, only the token is not ours

    async def _introspection_url(self, asking: Introspection) -> Url:
        if asking.url:
            return parse_url(asking.url)
        learned = (await self._discovered()).introspection_endpoint
        return self._same_origin(learned, "introspection_endpoint", "introspection.url")

    def _same_origin(self, learned: str, name: str, key: str) -> Url:
        try:
            url = parse_url(learned)
        except BadUrl:
            raise IssuerUnavailable(
                f"its metadata has no usable '{name}': write http.auth.{key}"
            ) from None
        if url.user or not url.same_origin(parse_url(self._settings.issuer)):
            raise IssuerUnavailable(
                f"its metadata names another host as '{name}': write http.auth.{key}"
            )
        return url

    # Discovery

    async def _discovered(self) -> _Metadata:
        if self._metadata is None:
            self._metadata = await self._discover()
        return self._metadata

    async def _discover(self) -> _Metadata:
        for url in metadata_urls(parse_url(self._settings.issuer)):
            try:
                text = await self._fetch(url)
            except _NotThere:
                continue
            try:
                metadata = msgspec.json.decode(text, type=_Metadata)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise IssuerUnavailable("its metadata is not what the standard says") from None
            if metadata.issuer != self._settings.issuer:
                raise IssuerUnavailable("its metadata has another issuer: correct http.auth.issuer")
            return metadata
        raise IssuerUnavailable("it has no metadata: correct http.auth.issuer, or write jwksUri")

    # Exchanges

    async def _fetch(self, url: Url, headers: bytes = b"", form: bytes = b"") -> bytes:
        start = b"%b %b" % (b"POST" if form else b"GET", url.target.encode())
        try:
            async with asyncio.timeout(ANSWER_TIME):
                response = await self._client(url).send(start, _ACCEPT + headers, form)
                try:
                    body = await response.whole(MOST_BYTES)
                finally:
                    response.close()
        except TimeoutError:
            raise IssuerUnavailable(f"no answer within {ANSWER_TIME:g} s") from None
        except (ExchangeFailed, BadUrl) as error:
            raise IssuerUnavailable(str(error)) from None
        if response.status == 200:
            return body
        kind = _FAILURES.get(response.status, IssuerUnavailable)
        raise kind(f"HTTP {response.status} from {url.origin}")

    def _client(self, url: Url) -> HttpClient:
        client = self._clients.get(url.origin)
        if client is None:
            client = self._clients[url.origin] = HttpClient(url, self._environ, CONNECTIONS)
        return client


def metadata_urls(issuer: Url) -> Iterator[Url]:
    """Where an issuer's metadata may be, in the order in which we look."""
    path = "" if issuer.target == "/" else issuer.target.rstrip("/")
    for name in ("oauth-authorization-server", "openid-configuration"):
        yield msgspec.structs.replace(issuer, target=f"/.well-known/{name}{path}")
    if path:
        yield msgspec.structs.replace(issuer, target=f"{path}/.well-known/openid-configuration")
