"""OAuth 2.1 as MCP uses it: addresses, documents, requests. Nothing is sent here.

The order of a sign-in: a 401 carries a `Challenge`; `resource_metadata_urls` and `server_metadata_urls` say where
the documents of the server and of its authorization server may be; `read_resource` and `read_server` check
them; `AuthorizationRequest` is the address for the browser, and reads the redirect. What follows, at the
token endpoint, is in `oauth_tokens`. RFC numbers stand where a rule comes from one.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Literal, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from mcp_workbench.core.redact import redact_cut
from mcp_workbench.transport.http.urls import is_slow_to_parse
from mcp_workbench.transport.json_text import too_deep

WELL_KNOWN_RESOURCE = "/.well-known/oauth-protected-resource"
WELL_KNOWN_SERVER = "/.well-known/oauth-authorization-server"
WELL_KNOWN_OPENID = "/.well-known/openid-configuration"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT_NAME = "MCP Workbench"
OFFLINE = "offline_access"  # the scope for which OpenID providers give a refresh token
LONGEST_CHALLENGE = 8192  # characters of WWW-Authenticate that are read
LONGEST_ISSUER = 512  # characters
LONGEST_REASON = 1000  # characters of a failure: much of it may be a server's own words
MOST_FIELDS = 50  # of a redirect's query
MOST_SCOPES = 100

AuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
Document = TypeVar("Document")

_PARAMETER = re.compile(
    r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s,\"]+))\s*(,|$)?"
)
_SCHEME = re.compile(r"(?:^|,)\s*bearer(?:\s+|$)", re.IGNORECASE)
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class SignInFailed(Exception):
    """Signing in failed. The text says why and what to do next; `code` is for `explain`."""

    def __init__(self, code: str, message: str) -> None:
        # It goes to terminals, pages and hosts, and may quote what a server wrote.
        super().__init__("".join(c for c in message[:LONGEST_REASON] if c.isprintable()))
        self.code = code


class NotThisSignIn(SignInFailed):
    """A redirect that does not belong to the sign-in that waits: anybody can send one."""

    def __init__(self) -> None:
        super().__init__(
            "WB-AUTH-006", "the answer belongs to another sign-in: start again, and use its address"
        )


# What a server says when it refuses


class Challenge(msgspec.Struct, frozen=True):
    """The Bearer challenge of a WWW-Authenticate header (RFC 6750, RFC 9728)."""

    resource_metadata: str = ""
    scope: str = ""
    error: str = ""

    @property
    def scopes(self) -> tuple[str, ...]:
        return split_scopes(self.scope)


def read_challenge(header: str) -> Challenge:
    """Read the first Bearer challenge; an empty one if there is none."""
    header = header[:LONGEST_CHALLENGE]
    scheme = _SCHEME.search(header)
    if scheme is None:
        return Challenge()
    values: dict[str, str] = {}
    at = scheme.end()
    while (match := _PARAMETER.match(header, at)) is not None:
        name, quoted, plain, comma = match.groups()
        value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
        values.setdefault(name.lower(), value)
        at = match.end()
        if comma != ",":
            break
    return Challenge(
        values.get("resource_metadata", ""), values.get("scope", ""), values.get("error", "")
    )


def split_scopes(text: str) -> tuple[str, ...]:
    """The scopes of a space-separated list; what is no scope is dropped."""
    return tuple(scope for scope in text.split()[:MOST_SCOPES] if _SCOPE.fullmatch(scope))


# Discovery


class Resource(msgspec.Struct, frozen=True):
    """Protected resource metadata (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] = ()


class AuthorizationServer(msgspec.Struct, frozen=True):
    """Authorization server metadata (RFC 8414, OpenID Connect Discovery)."""

    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes_supported: tuple[str, ...] = ()
    grant_types_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_signing_alg_values_supported: tuple[str, ...] = ()
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


def resource_metadata_urls(server_url: str, challenge: Challenge) -> list[str]:
    """Where the metadata of a protected resource may be; the first that exists counts."""
    path = urlsplit(server_url).path.rstrip("/")
    paths = [WELL_KNOWN_RESOURCE + path] if path else []
    named = [challenge.resource_metadata] if challenge.resource_metadata else []
    return named + [_at(server_url, each) for each in (*paths, WELL_KNOWN_RESOURCE)]


def server_metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of an authorization server may be; the first that exists counts."""
    path = _parts(issuer).path.rstrip("/")
    paths = [WELL_KNOWN_SERVER + path, WELL_KNOWN_OPENID + path]
    if path:
        paths.append(path + WELL_KNOWN_OPENID)
    return [_at(issuer, each) for each in paths]


def require_issuer(issuer: str) -> None:
    """Raise SignInFailed unless this has the form of an issuer (RFC 8414), which people and hosts are shown."""
    clean = issuer.isascii() and issuer.isprintable() and not set(issuer) & set(' ?#"<>\\')
    if not clean or len(issuer) > LONGEST_ISSUER:
        raise _no_address()


def _at(url: str, path: str) -> str:
    parts = _parts(url)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def origin_of(url: str) -> str:
    parts = _parts(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _parts(url: str) -> SplitResult:
    if is_slow_to_parse(url):
        raise _no_address()
    try:
        return urlsplit(url)
    except ValueError:
        raise _no_address() from None


def _no_address() -> SignInFailed:
    return SignInFailed("WB-AUTH-005", "the server's sign-in metadata has an address that is none")


def read_resource(body: bytes, server_url: str, source: str) -> Resource:
    """The metadata of a protected resource, which must be about this server. Raises SignInFailed."""
    resource = read_document(body, Resource, source)
    if not covers(resource.resource, server_url):
        raise SignInFailed(
            "WB-AUTH-005",
            f"the sign-in metadata at {source} is for {shown(resource.resource)}, not for the address in 'url': "
            "correct 'url', or report it to whoever runs the server",
        )
    return resource


def covers(resource: str, url: str) -> bool:
    """Is this the resource identifier of a server at this URL, or of what it is a part of?"""
    if origin_of(resource) != origin_of(url):
        return False
    whole = _parts(resource).path.rstrip("/") + "/"
    return (urlsplit(url).path.rstrip("/") + "/").startswith(whole)


def read_server(body: bytes, issuer: str, source: str) -> AuthorizationServer:
    """The metadata of an authorization server, which must be this issuer's. Raises SignInFailed.

    Servers of 2025-03-26 name no issuer: then it is the origin that the metadata comes from, whatever it
    claims, so that it can't pass for another one.
    """
    server = read_document(body, AuthorizationServer, source)
    if not issuer:
        server = msgspec.structs.replace(server, issuer=origin_of(source))
    elif server.issuer != issuer:
        raise SignInFailed(
            "WB-AUTH-005",
            f"the metadata at {source} is that of another issuer, {shown(server.issuer)} instead of "
            f"{shown(issuer)}: report it to whoever runs the server",
        )
    methods = server.code_challenge_methods_supported
    if methods is not None and "S256" not in methods:
        raise SignInFailed(
            "WB-AUTH-005",
            f"{server.issuer} does not support PKCE with S256, which MCP requires: report it to whoever runs it",
        )
    return server


def default_server(server_url: str) -> AuthorizationServer:
    """The endpoints of a server of 2025-03-26 that has no metadata at all."""
    origin = origin_of(server_url)
    return AuthorizationServer(
        issuer=origin,
        authorization_endpoint=f"{origin}/authorize",
        token_endpoint=f"{origin}/token",
        registration_endpoint=f"{origin}/register",
    )


def choose_scopes(
    configured: tuple[str, ...],
    challenge: Challenge,
    resource: Resource | None,
    server: AuthorizationServer,
) -> tuple[str, ...]:
    """The scopes to ask for: as configured, else those of the challenge, else all that the server lists."""
    listed = () if resource is None else resource.scopes_supported
    scopes = configured or challenge.scopes or split_scopes(" ".join(listed))
    if OFFLINE in server.scopes_supported and OFFLINE not in scopes and not configured:
        scopes += (OFFLINE,)
    return scopes


def read_document(body: bytes, type: type[Document], source: str) -> Document:
    """What a server sent as JSON. Raises SignInFailed."""
    problem = "nested too deeply"
    if not too_deep(body):
        try:
            return msgspec.json.decode(body, type=type)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = str(error)
    raise SignInFailed(
        "WB-AUTH-005",
        f"the document at {source} can't be used ({problem}): report it to whoever runs the server",
    )


def shown(url: str) -> str:
    return "".join(c for c in url[:200] if c.isprintable()) or "none"


# The client, as an authorization server knows it


class OAuthClient(msgspec.Struct, frozen=True):
    """Our identity at an authorization server."""

    id: str
    secret: str = ""
    method: AuthMethod = "none"
    redirect_uri: str = ""  # that it is registered with; empty: any on the loopback
    expires_at: float = 0.0  # of a registration; 0: never
    registered: bool = False  # dynamically, by us
    signing_algorithms: tuple[str, ...] = ()  # that its server accepts; empty: any

    def __repr__(self) -> str:
        return "OAuthClient()"  # the secret


class _Registration(msgspec.Struct, frozen=True):
    client_id: str
    client_secret: str = ""
    client_secret_expires_at: float = 0.0
    token_endpoint_auth_method: str = ""

    def __repr__(self) -> str:
        return "_Registration()"


def registration_request(redirect_uri: str, server: AuthorizationServer) -> bytes:
    """The body of a dynamic client registration (RFC 7591). It has no scope: that would cap later requests."""
    grants = ["authorization_code", "refresh_token"]
    if server.device_authorization_endpoint:
        grants.append(DEVICE_GRANT)
    offered = server.token_endpoint_auth_methods_supported
    method = "none"
    if offered is not None and "none" not in offered:
        method = next(
            (m for m in ("client_secret_basic", "client_secret_post") if m in offered), "none"
        )
    return msgspec.json.encode(
        {
            "client_name": CLIENT_NAME,
            "redirect_uris": [redirect_uri],
            "grant_types": grants,
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
            "application_type": "native" if _is_loopback(redirect_uri) else "web",
        }
    )


def _is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def read_registration(body: bytes, redirect_uri: str, server: AuthorizationServer) -> OAuthClient:
    """The client that the authorization server registered. Raises SignInFailed."""
    given = read_document(body, _Registration, server.registration_endpoint)
    method = given.token_endpoint_auth_method
    return OAuthClient(
        given.client_id,
        given.client_secret,
        _known_method(method) or auth_method(given.client_secret, server),
        redirect_uri,
        given.client_secret_expires_at,
        registered=True,
    )


def auth_method(secret: str, server: AuthorizationServer) -> AuthMethod:
    """How a client proves itself at the token endpoint, where nothing else says so."""
    if not secret:
        return "none"
    offered = server.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    return "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"


def _known_method(text: str) -> AuthMethod | None:
    methods: tuple[AuthMethod, ...] = ("none", "client_secret_basic", "client_secret_post")
    return next((method for method in methods if method == text), None)


# The authorization request, and the redirect


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """One request for a person's consent. `verifier` and `state` are secrets until it is complete."""

    server: AuthorizationServer
    client: OAuthClient
    redirect_uri: str
    resource: str
    scopes: tuple[str, ...]
    state: str
    verifier: str

    def __repr__(self) -> str:
        return "AuthorizationRequest()"

    @property
    def url(self) -> str:
        """The address for the browser."""
        from hashlib import sha256

        digest = sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": self.resource,
        }
        if self.scopes:
            query["scope"] = " ".join(self.scopes)
        if OFFLINE in self.scopes:
            query["prompt"] = "consent"  # OpenID Connect requires it for this scope
        parts = _parts(self.server.authorization_endpoint)
        merged = [
            pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in query
        ]
        return urlunsplit(parts._replace(query=urlencode([*merged, *query.items()]), fragment=""))

    def code_of(self, query: str) -> str:
        """The authorization code of a redirect, given its query. Raises SignInFailed."""
        try:
            values = dict(reversed(parse_qsl(query, max_num_fields=MOST_FIELDS)))
        except ValueError:
            raise NotThisSignIn from None
        self._check_origin(values)
        error = values.get("error", "")
        if error:
            raise self._refused(error, values.get("error_description", ""), values.get("code", ""))
        if not values.get("code"):
            raise SignInFailed(
                "WB-AUTH-006", "the address has no code: sign in again, and paste the whole address"
            )
        return values["code"]

    def _refused(self, error: str, description: str, code: str) -> SignInFailed:
        if error == "access_denied":
            return SignInFailed(
                "WB-AUTH-002",
                "the sign-in was declined: run the command again and allow access, or use another account",
            )
        secrets = {self.state: "state", self.verifier: "verifier", code: "code"}
        why = redact_cut(shown(description or error), secrets)
        return SignInFailed(
            "WB-AUTH-006",
            f"the authorization server refused ({why}): run the command again; if that changes nothing, "
            "report it to whoever runs the server",
        )

    def _check_origin(self, values: Mapping[str, str]) -> None:
        if not same(values.get("state", ""), self.state):
            raise NotThisSignIn
        issuer = values.get("iss")
        if issuer is None and not self.server.authorization_response_iss_parameter_supported:
            return
        if issuer != self.server.issuer:  # RFC 9207: compared as it is
            raise SignInFailed(
                "WB-AUTH-006",
                f"the answer does not come from {shown(self.server.issuer)}, which was asked: sign in again, "
                "and report it if it happens again",
            )


def same(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    from hmac import compare_digest

    return compare_digest(given.encode("utf-8", "replace"), expected.encode())
