"""Who may send a request over HTTP: host, origin, token and content types, and refusals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.spec import NOBODY, NamedToken, account_of
from mcp_workbench.server import text
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.messages import JSON, HttpRequest, Reply

if TYPE_CHECKING:
    from mcp_workbench.server.http.resource_server import ResourceServer, Undecided

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HTTP_PORT = 80  # left out of `Host`
ACCEPT_BYTES = 4096  # of `Accept`; browsers send a tenth
REMEMBERED = 64  # different values of `Accept` that are cached

_JSON = (b"application/json", b"application/*", b"*/*")
_EVENTS = (b"text/event-stream", b"text/*", b"*/*")


# Replies to requests that never reach a session


def refused(  # noqa: PLR0913 - all that a reply may have
    status: int,
    message: str,
    *,
    id: bytes = b"",
    code: int = jsonrpc.INVALID_REQUEST,
    headers: bytes = b"",
    data: Any = None,
) -> Reply:
    """A JSON-RPC error with an HTTP status; it has the request's id if that is known."""
    error = jsonrpc.error_object(code, message, data)
    return Reply(status, jsonrpc.refusal(id, error), headers, JSON)


WRONG_HOST = refused(421, "this host name is not served here (http.allowedHosts)")
WRONG_ORIGIN = refused(403, "this origin is not allowed (http.allowedOrigins)")
NOT_FOUND = refused(404, "there is nothing at this path")
NO_TOKEN = refused(
    401,
    "a bearer token is needed",
    headers=b'WWW-Authenticate: Bearer realm="mcp-workbench"\r\n',
)
NOT_ACCEPTABLE = refused(406, "accept application/json and text/event-stream")
NO_EVENTS = refused(406, "accept text/event-stream")
WRONG_TYPE = refused(415, "send application/json")
CLOSING = refused(
    503,
    text.ENDING,
    code=jsonrpc.SERVER_ERROR,
    headers=b"Retry-After: 5\r\n",
    data={text.CODE_KEY: text.DRAINING},
)
CUT_OFF = refused(503, "the workbench has ended; the call may have run", code=jsonrpc.SERVER_ERROR)
SILENT = refused(
    503,
    "the issuer of this token can't be asked now; try again",
    code=jsonrpc.SERVER_ERROR,
    headers=b"Retry-After: 5\r\n",
)
TOO_MANY = refused(503, "too many sessions", headers=b"Retry-After: 60\r\n")


def over_limit(message: str, seconds: float, id: bytes = b"") -> Reply:
    """The refusal of a principal that has reached a limit of its own."""
    wait = max(1, math.ceil(seconds))
    headers = b"Retry-After: %d\r\n" % wait
    data = {text.CODE_KEY: text.OVERLOADED, text.RETRY_KEY: wait}
    return refused(429, message, id=id, code=jsonrpc.SERVER_ERROR, headers=headers, data=data)


# Principals


class Principal(msgspec.Struct, frozen=True):
    """The owner of a token. Sessions, questions and signed states belong to one."""

    name: str
    toolboxes: tuple[str, ...] | None = None  # that it may use; None is all
    among: int = 1  # how many principals there are: each has a share of the limits
    signed_in: bool = False  # at an issuer; there may be any number of these
    issuer: str = ""

    @property
    def account(self) -> str:
        """Under what its own sign-ins at servers are kept."""
        return account_of(self.name, self.issuer)

    def sees(self, toolbox: str) -> bool:
        return self.toolboxes is None or toolbox in self.toolboxes


NEVER = float("inf")
COUNTED = float("inf")  # another object: the token never expires, but each request is counted


class Identity(msgspec.Struct, frozen=True):
    """Who brings a request, and until when its token says so."""

    principal: Principal
    until: float = NEVER  # seconds since the epoch


# No name in a configuration has a parenthesis, a number sign or a colon; `sub:` precedes a subject.
ANONYMOUS = Identity(Principal(NOBODY))


class Principals:
    """All principals, by the digest of their token. Tokens themselves are not stored."""

    def __init__(
        self, token: str = "", named: Iterable[NamedToken] = (), *, beside_issuer: bool = False
    ) -> None:
        named = tuple(named)
        among = len(named) + bool(token) + beside_issuer
        self._known = [
            (_digest(entry.token.encode()), Identity(Principal(entry.name, entry.toolboxes, among)))
            for entry in named
        ]
        if token:
            digest = _digest(token.encode())
            principal = Principal(f"#{_digest(digest).hex()[:16]}", None, among)
            self._known.append((digest, Identity(principal)))
        # Whether they see different toolboxes.
        self.differ = any(entry.toolboxes is not None for entry in named)

    def __len__(self) -> int:
        return len(self._known)

    def bearer(self, authorization: bytes) -> Identity | None:
        """Whose token is in this header. Takes the same time for every token, valid or not."""
        scheme, _, token = authorization.partition(b" ")
        from hmac import compare_digest  # loads hashing, which a port without tokens never needs

        digest = _digest(token.strip())
        match = None
        for known, identity in self._known:
            if compare_digest(digest, known):
                match = identity
        return match if scheme.lower() == b"bearer" else None


def _digest(token: bytes) -> bytes:
    from hashlib import sha256

    return sha256(token).digest()


# The checks


class Access:
    """The access rules of one port: allowed hosts and origins, and tokens or none."""

    def __init__(
        self,
        hosts: frozenset[str],
        origins: Iterable[str] = (),
        principals: Principals | None = None,
        issuer: ResourceServer | None = None,
    ) -> None:
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        own = {b"http://" + host for host in self._hosts if _is_loopback(host)}
        self._own_origins = frozenset(own)  # pages that we serve
        self._principals = principals or None
        self.issuer = issuer
        self.differ = (principals is not None and principals.differ) or (
            issuer is not None and issuer.differ
        )
        self._takes_both: dict[bytes, bool] = {}
        self.port = 0  # that is bound

    @property
    def has_login(self) -> bool:
        """Whether hosts have to show who they are."""
        return self._principals is not None or self.issuer is not None

    def public_origin(self, host: bytes) -> str:
        """Where a browser reaches this port: as the issuer's settings say, else by this name, which was checked.

        A name with our own port, or of this machine, was reached without TLS; others through a proxy that has it.
        """
        if self.issuer is not None:
            return self.issuer.origin
        name = host.decode("latin-1").lower()
        direct = _is_loopback(host) or name.endswith(f":{self.port}")
        return f"{'http' if direct else 'https'}://{name}"

    def holder(self, token: str) -> str:
        """Whose token this is: under what its sign-ins are kept; empty if it is nobody's."""
        if self._principals is None:
            return ""
        identity = self._principals.bearer(b"Bearer " + token.encode("utf-8", "replace"))
        return "" if identity is None else identity.principal.account

    def is_foreign_host(self, request: HttpRequest) -> bool:
        host = request.headers.get(b"host", b"")
        return host not in self._hosts and host.lower() not in self._hosts

    def foreign(self, request: HttpRequest) -> Reply | None:
        """Refuse a request to another host name, or from an origin that is not allowed."""
        if self.is_foreign_host(request):
            return WRONG_HOST
        origin = request.headers.get(b"origin")
        if origin is None:
            return None
        origin = origin.lower()
        if origin in self._origins:
            request.reply_headers += (
                b"Access-Control-Allow-Origin: %b\r\nVary: Origin\r\n"
                b"Access-Control-Expose-Headers: Mcp-Session-Id, WWW-Authenticate\r\n"
                % request.headers[b"origin"]
            )
            return None
        return None if origin in self._own_origins else WRONG_ORIGIN

    def identify(self, request: HttpRequest, path: bytes) -> Identity | Reply | Undecided:
        """Who brings a request, or the refusal of somebody unknown; `Undecided` if the issuer must be asked."""
        if self._principals is None and self.issuer is None:
            return ANONYMOUS
        if self._principals is not None:
            identity = self._principals.bearer(request.headers.get(b"authorization", b""))
            if identity is not None:
                return identity
        return NO_TOKEN if self.issuer is None else self.issuer.identify(request, path)

    def unreadable(self, request: HttpRequest) -> Reply | None:
        """Refuse a request whose body we can't read, or whose sender can't read our response."""
        if request.method != b"POST":
            accepted = _accepts(request.headers.get(b"accept", b""), _EVENTS)
            return None if accepted or request.method == b"DELETE" else NO_EVENTS
        accept = request.headers.get(b"accept", b"")
        both = self._takes_both.get(accept)
        if both is None:
            both = _accepts(accept, _JSON) and _accepts(accept, _EVENTS)
            if len(self._takes_both) < REMEMBERED:
                self._takes_both[accept] = both
        if not both:
            return NOT_ACCEPTABLE
        kind = request.headers.get(b"content-type", b"")
        if kind != b"application/json" and _media_type(kind) != b"application/json":
            return WRONG_TYPE
        return None


def names_of(host: str, port: int, allowed: tuple[str, ...]) -> frozenset[str]:
    """Every value of `Host` for a port that is bound to this address."""
    names: set[str] = set()
    if is_loopback(host):
        names = {*LOOPBACK, f"[{host}]" if ":" in host else host}
    full = {f"{name}:{port}" for name in names}
    for name in allowed:
        full.add(name)
        if not _has_port(name):
            full.add(f"{name}:{port}")
    return frozenset(full | (names if port == HTTP_PORT else set()))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. No name but localhost is."""
    return host in ("localhost", "::1", "0:0:0:0:0:0:0:1") or _is_ipv4_loopback(host)


def _is_ipv4_loopback(host: str) -> bool:
    parts = host.split(".")
    return parts[0] == "127" and len(parts) == len("1234") and all(p.isdecimal() for p in parts)


def _is_loopback(host: bytes) -> bool:
    name = host.decode().rpartition(":")[0] or host.decode()
    return is_loopback(name.strip("[]"))


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdecimal() and not name.endswith("]")


def _accepts(accept: bytes, kinds: tuple[bytes, ...]) -> bool:
    if len(accept) > ACCEPT_BYTES:
        return False
    ranges = (part.partition(b";") for part in accept.lower().split(b","))
    return any(
        kind.strip() in kinds and b"q=0" not in more.replace(b" ", b"").split(b";")
        for kind, _, more in ranges
    )


def _media_type(value: bytes) -> bytes:
    return value.partition(b";")[0].strip().lower()
