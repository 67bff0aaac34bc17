"""Signing in: find the authorization server, be its client, get a person's consent, keep the tokens.

`SignIn` knows one server. `open` prepares a request for consent and listens for its redirect on the loopback;
`PendingSignIn.url` is for the browser, and `done` waits for the person. `by_device` and `for_machine` need no
redirect. Nothing here opens a browser.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import msgspec

from mcp_workbench.config.expand import Environment
from mcp_workbench.config.state_home import state_home
from mcp_workbench.core.redact import redact_cut
from mcp_workbench.core.spec import AuthSettings, HttpEndpoint
from mcp_workbench.protocol import oauth, oauth_tokens
from mcp_workbench.protocol.oauth import (
    AuthorizationRequest,
    AuthorizationServer,
    Challenge,
    NotThisSignIn,
    OAuthClient,
    Resource,
    SignInFailed,
)
from mcp_workbench.protocol.oauth_tokens import DeviceCode, Tokens
from mcp_workbench.timing import pause
from mcp_workbench.upstream.oauth.outgoing import Fetched, Outgoing
from mcp_workbench.upstream.oauth.redirect import Visit, Visits, redirect_listener
from mcp_workbench.upstream.oauth.store import ClientStore, Credential, CredentialStore

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
DISCOVERY = 45.0  # seconds for all documents: a server could send each slowly, and redirect
LIFETIME = 600.0  # seconds in which a person has to sign in
PING = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'
TEMPORARY = "WB-AUTH-004"  # the code of failures that may pass
FINAL = (
    "WB-AUTH-003",
    "WB-AUTH-006",
)  # the codes of refusals: what was refused is of no use any more
SLOWER = 5.0  # seconds that a device is to wait longer (RFC 8628)
CLOCK_OFF = 300.0  # seconds by which clocks may differ before people are told
_BUSY = ("temporarily_unavailable", "server_error")


class Endpoints(msgspec.Struct, frozen=True):
    """What discovery found."""

    server: AuthorizationServer
    resource: Resource | None
    identifier: str  # of the resource, for RFC 8707
    challenge: Challenge


class SignIn:
    """Signs in to the server of one entry, whose strings are expanded."""

    def __init__(
        self,
        target: HttpEndpoint,
        environ: Mapping[str, str],
        principal: str = "",
        challenge: Challenge | None = None,
    ) -> None:
        self.settings = target.auth
        self.url = target.url
        self.outgoing = outgoing_of(target, environ)
        self.store = store_of(target, environ, principal)
        self.refused_at = 0.0  # when the server refused the token that this sign-in replaces
        self._home = state_home(environ)
        self._principal = principal
        self._page_uri = ""  # of a page of ours to which browsers come back
        self._challenge = challenge

    @property
    def clock_warning(self) -> str:
        """What to tell the person if the clocks differ; empty if they don't."""
        from email.utils import (
            parsedate_to_datetime,
        )  # heavy, and only needed by people who sign in

        try:
            theirs = parsedate_to_datetime(self.outgoing.date).timestamp()
        except (TypeError, ValueError, OverflowError):
            return ""
        off = time.time() - theirs
        if abs(off) < CLOCK_OFF:
            return ""
        return (
            f"The clock of this machine is {abs(off) / 60:.0f} minutes {'ahead' if off > 0 else 'behind'} "
            "(WB-AUTH-013): set it. Until then certificates and signed requests may be refused."
        )

    # Discovery

    async def discover(self) -> Endpoints:
        """Find the authorization server. Raises SignInFailed."""
        try:
            async with asyncio.timeout(DISCOVERY):
                return await self._discover()
        except TimeoutError:
            raise SignInFailed(
                TEMPORARY, f"the server did not say within {DISCOVERY:g} s where to sign in"
            ) from None

    async def _discover(self) -> Endpoints:
        challenge = await self._asked() if self._challenge is None else self._challenge
        resource = await self._resource(challenge)
        issuer = self.settings.issuer or _first_issuer(resource)
        server = await self._server(issuer)
        identifier = self.url if resource is None else resource.resource
        return Endpoints(server, resource, identifier, challenge)

    async def _asked(self) -> Challenge:
        """Ask the server without credentials what it wants."""
        reply = await self.outgoing.ask(self.url, PING)
        if reply.status not in (401, 403):
            raise SignInFailed(
                "WB-AUTH-001",
                f"the server answered HTTP {reply.status} without credentials: it asks for no sign-in; "
                "`mcp-workbench check --connect` says whether it works",
            )
        return oauth.read_challenge(reply.challenge)

    async def _resource(self, challenge: Challenge) -> Resource | None:
        for url in oauth.resource_metadata_urls(self.url, challenge):
            reply = await self.outgoing.get(url)
            _require_up(reply, url)
            if reply.status == 200:
                return oauth.read_resource(reply.body, self.url, url)
        return None

    async def _server(self, issuer: str) -> AuthorizationServer:
        oauth.require_issuer(issuer)
        for url in oauth.server_metadata_urls(issuer or oauth.origin_of(self.url)):
            reply = await self.outgoing.get(url)
            _require_up(reply, url)
            if reply.status == 200:
                return oauth.read_server(reply.body, issuer, url)
        if issuer:
            raise SignInFailed(
                "WB-AUTH-005",
                f"{issuer} publishes no metadata of an authorization server: correct 'auth.issuer' if you wrote "
                "it, else report it to whoever runs the server",
            )
        return oauth.default_server(self.url)

    # The client

    def _known_client(self, endpoints: Endpoints) -> OAuthClient | None:
        settings, server = self.settings, endpoints.server
        if settings.client_id:
            self._require_same_issuer(server.issuer)
            return _configured(settings, settings.client_id, server)
        if settings.client_metadata_url and server.client_id_metadata_document_supported:
            return _configured(settings, settings.client_metadata_url, server)
        client = self._clients(server.issuer).read()
        if client is None or 0 < client.expires_at < time.time():
            return None
        return client

    def _require_same_issuer(self, issuer: str) -> None:
        """Raise SignInFailed where the operator's secret would go to another issuer than before.

        The server names the issuer, and could name its own to get the secret.
        """
        stored = None if self.settings.issuer else self.store.read()
        if stored is not None and self.settings.client_secret and stored.issuer != issuer:
            raise SignInFailed(
                "WB-AUTH-005",
                f"the server names another issuer than before, {issuer} instead of {stored.issuer}: if that is "
                'right, write "auth": {"issuer": "…"} in the server\'s entry',
            )

    async def _client(self, endpoints: Endpoints, redirect_uri: str) -> OAuthClient:
        client, server = self._known_client(endpoints), endpoints.server
        if client is not None and not client.registered:
            return client
        fits = client is not None and client.redirect_uri == redirect_uri
        if client is not None and fits and await self._is_registered(server, client):
            return client
        if not server.registration_endpoint:
            raise SignInFailed(
                "WB-AUTH-003",
                f"{server.issuer} does not register clients by itself: register one there with the redirect "
                f'address {redirect_uri}, and write "auth": {{"clientId": "…"}} in the server\'s entry',
            )
        body = oauth.registration_request(redirect_uri, server)
        reply = await self.outgoing.post(server.registration_endpoint, b"", body, JSON)
        _require_up(reply, server.registration_endpoint)
        if not reply.ok:
            raise _refused(
                "WB-AUTH-003", f"{server.issuer} refused to register this program", reply
            )
        client = oauth.read_registration(reply.body, redirect_uri, server)
        self._clients(server.issuer).write(client)
        return client

    def _clients(self, issuer: str) -> ClientStore:
        """Our registration at an issuer; pages of ours have another than the command line."""
        return ClientStore(self._home, f"{issuer} {self._page_uri}" if self._page_uri else issuer)

    async def _is_registered(self, server: AuthorizationServer, client: OAuthClient) -> bool:
        """Does the authorization server still know this client?

        If it does not, it shows the person an error, and never redirects to us. So it is asked first, with
        a refresh token that it can't have given.
        """
        fields = {"grant_type": "refresh_token", "refresh_token": secrets.token_urlsafe(16)}
        reply = await self._token(server, client, fields)
        error, _ = oauth_tokens.read_error(reply.body)
        return error != "invalid_client"

    # With a browser

    @asynccontextmanager
    async def open(self, visits: Visits | None = None) -> AsyncGenerator[PendingSignIn]:
        """Prepare a sign-in with a browser, and listen for its redirect. Raises SignInFailed.

        With `visits`, somebody else listens, at their address.
        """
        self._page_uri = "" if visits is None else visits.uri
        endpoints = await self.discover()
        if not endpoints.server.authorization_endpoint:
            raise SignInFailed(
                "WB-AUTH-005",
                f"{endpoints.server.issuer} offers no sign-in with a browser: try `login --device`",
            )
        known = self._known_client(endpoints)
        registered = _port(known.redirect_uri) if known is not None else 0
        async with (
            redirect_listener(self.settings.redirect_port, registered)
            if visits is None
            else nullcontext(visits)
        ) as redirects:
            client = await self._client(endpoints, redirects.uri)
            request = AuthorizationRequest(
                endpoints.server,
                client,
                redirects.uri,
                endpoints.identifier,
                self._scopes(endpoints),
                secrets.token_urlsafe(24),
                secrets.token_urlsafe(48),
            )
            # Never shown, nor opened, if it is not allowed.
            yield PendingSignIn(self, request, redirects, self.outgoing.shown(request.url))

    def _scopes(self, endpoints: Endpoints) -> tuple[str, ...]:
        scopes = oauth.choose_scopes(
            self.settings.scopes, endpoints.challenge, endpoints.resource, endpoints.server
        )
        stored = self.store.read()
        if endpoints.challenge.error == "insufficient_scope" and stored is not None:
            scopes = tuple(dict.fromkeys((*oauth.split_scopes(stored.scope), *scopes)))
        return scopes

    async def exchange(self, request: AuthorizationRequest, code: str) -> Credential:
        """Get the tokens for a code, and keep them. Raises SignInFailed."""
        reply = await self._token(
            request.server, request.client, oauth_tokens.code_grant(request, code)
        )
        return await self._keep(
            request.server, request.client, request.resource, request.scopes, reply
        )

    # Without a redirect

    async def by_device(
        self, show: Callable[[DeviceCode], None], seconds: float = LIFETIME
    ) -> Credential:
        """Sign in with a code that the person enters on another device. Raises SignInFailed."""
        endpoints = await self.discover()
        server = endpoints.server
        if not server.device_authorization_endpoint:
            raise SignInFailed(
                "WB-AUTH-005",
                f"{server.issuer} offers no sign-in by device code: use `login`, or `login --no-browser`",
            )
        client = await self._client(endpoints, "http://127.0.0.1/callback")
        scopes = self._scopes(endpoints)
        fields = {"scope": " ".join(scopes), "resource": endpoints.identifier}
        headers, body = await token_request(self.settings, client, server.issuer, fields)
        reply = await self.outgoing.post(server.device_authorization_endpoint, headers, body, FORM)
        _require_up(reply, server.device_authorization_endpoint)
        if not reply.ok:
            raise _refused("WB-AUTH-006", f"{server.issuer} gave no device code", reply)
        code = oauth_tokens.read_device_code(reply.body, server.device_authorization_endpoint)
        show(self._shown(code))
        reply = await self._poll(
            server, client, code, oauth_tokens.device_grant(code, endpoints.identifier), seconds
        )
        return await self._keep(server, client, endpoints.identifier, scopes, reply)

    def _shown(self, code: DeviceCode) -> DeviceCode:
        """The code with addresses that may be shown to a person. Raises SignInFailed."""
        complete = code.verification_uri_complete
        return msgspec.structs.replace(
            code,
            verification_uri=self.outgoing.shown(code.verification_uri),
            verification_uri_complete=self.outgoing.shown(complete) if complete else "",
        )

    async def _poll(
        self,
        server: AuthorizationServer,
        client: OAuthClient,
        code: DeviceCode,
        fields: Mapping[str, str],
        seconds: float,
    ) -> Fetched:
        """Ask until the person has decided; a fault of the network or of the server may pass meanwhile."""
        interval = max(code.interval, 1.0)
        end = time.monotonic() + min(code.expires_in, seconds)
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(pause(interval), left))
            try:
                reply = await self._token(server, client, fields)
                _require_up(reply, server.token_endpoint)
            except SignInFailed as failure:
                if failure.code != TEMPORARY:
                    raise
                continue
            error, _ = oauth_tokens.read_error(reply.body)
            if error == "slow_down":
                interval += SLOWER
            elif error == "access_denied":
                raise SignInFailed(
                    "WB-AUTH-002",
                    "the sign-in was declined on the other device: run the command again and allow access, "
                    "or use another account",
                )
            elif error == "expired_token":
                break
            elif error != "authorization_pending":
                return reply
        raise SignInFailed("WB-AUTH-007", "the code was not used in time: run the command again")

    async def for_machine(self) -> Credential:
        """Get a token with the client's own credentials. Raises SignInFailed."""
        endpoints = await self.discover()
        client = self._known_client(endpoints)
        if client is None:
            raise SignInFailed("WB-AUTH-003", "'client_credentials' needs a 'clientId' in 'auth'")
        scopes = tuple(scope for scope in self._scopes(endpoints) if scope != oauth.OFFLINE)
        fields = oauth_tokens.client_grant(scopes, endpoints.identifier)
        reply = await self._token(endpoints.server, client, fields)
        return await self._keep(endpoints.server, client, endpoints.identifier, scopes, reply)

    # Tokens

    async def _token(
        self, server: AuthorizationServer, client: OAuthClient, fields: Mapping[str, str]
    ) -> Fetched:
        headers, body = await token_request(self.settings, client, server.issuer, fields)
        return await self.outgoing.post(server.token_endpoint, headers, body, FORM)

    async def _keep(
        self,
        server: AuthorizationServer,
        client: OAuthClient,
        resource: str,
        scopes: tuple[str, ...],
        reply: Fetched,
    ) -> Credential:
        tokens = read_reply(reply, server.token_endpoint)
        credential = Credential(
            self.url,
            server.issuer,
            server.token_endpoint,
            resource,
            client,
            scope=" ".join(scopes),
            account=tokens.account,
            signed_in_at=time.time(),
            revocation_endpoint=server.revocation_endpoint,
            refused_at=self.refused_at,
            principal=self._principal,
        )
        credential = with_tokens(credential, tokens)
        async with self.store.locked():
            self.store.write(credential)
        return credential


class PendingSignIn:
    """Waits for a person who has been given `url`."""

    def __init__(
        self, sign_in: SignIn, request: AuthorizationRequest, redirects: Visits, url: str
    ) -> None:
        self._sign_in = sign_in
        self._request = request
        self._redirects = redirects
        self.url = url
        self.issuer = _with_page(request.server.issuer, url)
        self.state = request.state

    async def done(self, seconds: float = LIFETIME) -> Credential:
        """Wait for the redirect, and get the tokens. Raises SignInFailed."""
        end = time.monotonic() + seconds
        while True:
            visit = await self._next_visit(end, seconds)
            try:
                credential = await self.complete(visit.query)
            except SignInFailed as error:
                visit.answer(str(error), ok=False)
                if isinstance(error, NotThisSignIn):
                    continue  # somebody else's redirect ends nobody's sign-in
                raise
            visit.answer(f"You are signed in to {credential.issuer}.", ok=True)
            return credential

    async def _next_visit(self, end: float, seconds: float) -> Visit:
        try:
            async with asyncio.timeout(end - time.monotonic()):
                return await self._redirects.next()
        except TimeoutError:
            raise SignInFailed(
                "WB-AUTH-007", f"nobody signed in within {seconds:g} s: start again"
            ) from None

    async def complete(self, query: str) -> Credential:
        """Take the query of the redirect address, and get the tokens. Raises SignInFailed."""
        return await self._sign_in.exchange(self._request, self._request.code_of(query))


def _with_page(issuer: str, url: str) -> str:
    """The issuer for people to read: with its page, where that is at another origin, which may be anybody's."""
    page = oauth.origin_of(url)
    return issuer if page == oauth.origin_of(issuer) else f"{issuer} (its page is at {page})"


def outgoing_of(target: HttpEndpoint, environ: Mapping[str, str]) -> Outgoing:
    settings = target.auth
    issuer = (oauth.origin_of(settings.issuer),) if settings.issuer else ()
    trusted = (oauth.origin_of(target.url), *issuer, *settings.allowed_origins)
    return Outgoing(trusted, environ)


def store_of(target: HttpEndpoint, environ: Mapping[str, str], principal: str) -> CredentialStore:
    settings = target.auth
    account = "\0".join((settings.account, settings.client_id, settings.grant))
    shared: Any = environ.shared_credentials if isinstance(environ, Environment) else None
    store = CredentialStore(state_home(environ), target.url, account, principal, shared)
    store.issuer = settings.issuer
    return store


def _configured(settings: AuthSettings, id: str, server: AuthorizationServer) -> OAuthClient:
    """The client that the entry names, with the proof that it has."""
    if settings.private_key:
        accepted = server.token_endpoint_auth_signing_alg_values_supported
        return OAuthClient(id, method="private_key_jwt", signing_algorithms=accepted)
    secret = settings.client_secret if settings.client_id else ""
    return OAuthClient(id, secret, oauth.auth_method(secret, server))


async def token_request(
    settings: AuthSettings, client: OAuthClient, issuer: str, fields: Mapping[str, str]
) -> tuple[bytes, bytes]:
    """The extra headers and the body of a request to the token endpoint. Raises SignInFailed."""
    if client.method == "private_key_jwt":
        from mcp_workbench.upstream.oauth.client_key import proof  # only with a key

        fields = {**fields, **await asyncio.to_thread(proof, settings, client, issuer)}
    return oauth_tokens.token_request(client, fields)


def with_tokens(credential: Credential, tokens: Tokens) -> Credential:
    """The credential with new tokens; a refresh token that is not replaced stays."""
    lifetime = tokens.expires_in
    return msgspec.structs.replace(
        credential,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or credential.refresh_token,
        expires_at=0.0 if lifetime is None else time.time() + lifetime,
        lifetime=lifetime or 0.0,
        scope=tokens.scope or credential.scope,
        account=tokens.account or credential.account,
        ended="",
    )


def read_reply(reply: Fetched, source: str) -> Tokens:
    """The tokens of a response of the token endpoint. Raises SignInFailed."""
    _require_up(reply, source)
    error, _ = oauth_tokens.read_error(reply.body)  # some servers send errors with HTTP 200
    if reply.ok and not error:
        return oauth_tokens.read_tokens(reply.body, source)
    if error == "invalid_client":
        raise _refused(
            "WB-AUTH-003", f"{source} does not know this program any more: sign in again", reply
        )
    if error:
        raise _refused("WB-AUTH-006", f"{source} gave no token: sign in again", reply)
    raise SignInFailed(
        TEMPORARY,
        f"{source} answered HTTP {reply.status} without a reason that OAuth knows: a proxy on the way may have; "
        "try again later",
    )


def _require_up(reply: Fetched, url: str) -> None:
    if (
        reply.status >= 500
        or reply.status == 429
        or oauth_tokens.read_error(reply.body)[0] in _BUSY
    ):
        raise SignInFailed(
            TEMPORARY, f"{oauth.origin_of(url)} answered HTTP {reply.status}; try again later"
        )


def _refused(code: str, what: str, reply: Fetched) -> SignInFailed:
    error, description = oauth_tokens.read_error(reply.body)
    why = redact_cut(description or error, reply.secrets) or f"HTTP {reply.status}"
    return SignInFailed(code, f"{what} ({why})")


def _first_issuer(resource: Resource | None) -> str:
    return resource.authorization_servers[0] if resource and resource.authorization_servers else ""


def _port(redirect_uri: str) -> int:
    from urllib.parse import urlsplit

    try:
        return urlsplit(redirect_uri).port or 0
    except ValueError:
        return 0
