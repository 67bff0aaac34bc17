"""The port as an OAuth resource server: who a token is for, and where to get one.

We issue no token and relay none. A JWT is checked with the issuer's keys; of any other token the issuer is
asked (introspection). Both answers are kept for a while, by the digest of the token.

A check never waits. Where it needs the issuer first, it returns an `Undecided`: the request is read,
`Undecided.wait` asks, and the request is checked again. Whoever sends made-up tokens costs the issuer one
request a minute for its keys, and at most WAITING at a time for introspection; the rest is refused.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.spec import ALL_TOOLBOXES, SUBJECT, IssuerSettings
from mcp_workbench.protocol.oauth import origin_of
from mcp_workbench.server.http.access import SILENT, Identity, Principal, refused
from mcp_workbench.server.http.issuer import Issuer, IssuerUnavailable
from mcp_workbench.server.http.signing_keys import (
    UNKNOWN_KEY,
    JwtHeader,
    SigningKey,
    check_header,
    read_header,
    read_keys,
    signed_claims,
)
from mcp_workbench.server.http.token_claims import (
    MALFORMED,
    WRONG_AUDIENCE,
    Claims,
    TokenFacts,
    TokenRefused,
    token_facts,
)
from mcp_workbench.transport.http.messages import JSON, Reply
from mcp_workbench.transport.http.urls import parse_url
from mcp_workbench.transport.tasks import TaskScope

if TYPE_CHECKING:
    from mcp_workbench.transport.http.messages import HttpRequest

log = logging.getLogger(__name__)

KEYS_FRESH = 3600.0  # seconds until keys are fetched anew, so that a withdrawn one ends
KEYS_PAUSE = 60.0  # seconds between two fetches because of an unknown key
RETRY_PAUSE = 5.0  # seconds after a fetch that failed
CHECKED = 300.0  # seconds for which a JWT that was checked is not checked again
ASKED = 60.0  # seconds for which the issuer's word on a token holds: so long a revoked one lives
INACTIVE = 10.0  # seconds for which its refusal holds
MOST_TOKENS = 4096  # remembered
MOST_REFUSED = 256
WAITING = 32  # tokens that the issuer is asked about at the same time
LONGEST_TOKEN = 8192  # characters
SHARE = 8  # one person has at most one in so many sessions
METADATA = b"/.well-known/oauth-protected-resource"

_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_TOOLBOX = re.compile(rb"/mcp/([A-Za-z0-9_-]{1,200})")
_NOT_A_JWT = "it is not a JWT"
_NOT_ACTIVE = "the issuer does not know it, or has revoked it"

_read_answer = msgspec.json.Decoder(dict[str, Any]).decode


class Undecided(msgspec.Struct, frozen=True, eq=False):
    """A token that can't be judged before the issuer was asked."""

    wait: Callable[[], Coroutine[Any, Any, None]]


class IssuerKeys:
    """The issuer's keys, and when they were fetched."""

    def __init__(self) -> None:
        self.by_kid: dict[str, tuple[SigningKey, ...]] = {}
        self.failed = True  # the last fetch, or there was none
        self.fetched_at = -KEYS_FRESH
        self.tried_at = -KEYS_FRESH

    def may_fetch(self, kid: str, now: float) -> bool:
        """Whether a token of this key is a reason to fetch them."""
        if kid in self.by_kid and now - self.fetched_at < KEYS_FRESH:
            return False
        return now - self.tried_at >= (RETRY_PAUSE if self.failed else KEYS_PAUSE)

    def trying(self, now: float) -> None:
        self.tried_at = now
        self.failed = True

    def fetched(self, text: bytes, now: float) -> None:
        self.by_kid = read_keys(text)
        self.fetched_at = now
        self.failed = False


class ResourceServer:
    """Judges the tokens of one issuer."""

    def __init__(
        self,
        settings: IssuerSettings,
        scope: TaskScope,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._scope = scope
        self.clock = clock  # seconds since the epoch
        self._issuer = Issuer(settings, environ)
        self.keys = IssuerKeys()
        self.facts: dict[bytes, TokenFacts] = {}  # by digest, oldest first
        self.refused: dict[bytes, float] = {}  # by digest: until when the issuer's refusal holds
        self._pending: dict[object, asyncio.Task[None]] = {}
        self._origin = parse_url(settings.resource).origin
        self._path = parse_url(settings.resource).target.encode()
        self._scopes = tuple(scope for scope, _ in settings.scopes)
        self.differ = ALL_TOOLBOXES not in settings.toolboxes

    def holds(self, until: float) -> bool:
        """Whether a token that was accepted until then still is."""
        return self.clock() < until

    def prepare(self) -> None:
        """Fetch the keys in the background."""
        self._scope.start(self._shared("keys", self._fetch_keys), "issuer's keys")

    def close(self) -> None:
        self._issuer.close()

    # Tokens

    def identify(self, request: HttpRequest, path: bytes) -> Identity | Reply | Undecided:
        """Who brings this request, or its refusal, or what has to be awaited first."""
        scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token:
            return self._challenge(path)
        if len(token) > LONGEST_TOKEN or not _TOKEN.fullmatch(token):
            return self._challenge(path, MALFORMED)
        try:
            facts = self._judge(token)
        except TokenRefused as error:
            log.debug("a token was refused: %s", error)
            return self._challenge(path, str(error))
        return facts if not isinstance(facts, TokenFacts) else self._identity(facts, path)

    def _judge(self, token: bytes) -> TokenFacts | Reply | Undecided:
        digest = sha256(token).digest()
        known = self.facts.get(digest)
        if known is not None and self.holds(known.until):
            return known
        text = token.decode("ascii")
        header = read_header(text)
        if header is None:
            return self._ask(text, digest)
        check_header(header)
        return self._check(text, header, digest)

    def _check(
        self, token: str, header: JwtHeader, digest: bytes
    ) -> TokenFacts | Reply | Undecided:
        keys = self.keys.by_kid.get(header.kid)
        wants_keys = self.keys.may_fetch(header.kid, time.monotonic())
        if keys is None and (wants_keys or "keys" in self._pending):
            return Undecided(lambda: self._shared("keys", self._fetch_keys))
        if wants_keys:  # they are old: whoever has a known key need not wait for new ones
            self.prepare()
        if keys is None and self.keys.failed:
            return SILENT
        if keys is None:
            raise TokenRefused(UNKNOWN_KEY)
        claims = signed_claims(token, header, keys)
        return self.remember(digest, claims, CHECKED, signed=True)

    def remember(
        self, digest: bytes, claims: Claims, longest: float, *, signed: bool
    ) -> TokenFacts:
        facts = token_facts(claims, self._settings, self.clock(), longest, signed=signed)
        self.facts.pop(digest, None)
        _add(self.facts, digest, facts, MOST_TOKENS)
        return facts

    def _identity(self, facts: TokenFacts, path: bytes) -> Identity | Reply:
        if not any(audience in facts.audiences for audience in self._audiences(path)):
            return self._challenge(path, WRONG_AUDIENCE)
        name, issuer = f"{SUBJECT}{facts.subject}", self._settings.issuer
        principal = Principal(name, facts.toolboxes, SHARE, signed_in=True, issuer=issuer)
        if path == b"/mcp" and facts.toolboxes == ():
            return self._lacks_scope(path, self._scopes)
        return Identity(principal, facts.until)

    @property
    def origin(self) -> str:
        """The public origin of the port."""
        return origin_of(self._settings.resource)

    def _audiences(self, path: bytes) -> tuple[str, ...]:
        """Whose tokens are accepted at this path. One for a single toolbox opens no other path."""
        whole, resource = self._settings.audience, self._settings.resource
        box = _TOOLBOX.fullmatch(path)
        if box is None or whole != resource:
            return (whole,)
        return (whole, f"{resource}/{box[1].decode()}")

    # Asking the issuer

    async def _shared(self, key: object, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this once for all who wait for it. Never raises: the next check sees what came of it."""
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = self._scope.start(work(), "asking the issuer")
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        await asyncio.wait((task,))

    async def _fetch_keys(self) -> None:
        self.keys.trying(time.monotonic())
        try:
            self.keys.fetched(await self._issuer.keys(), time.monotonic())
        except (IssuerUnavailable, ValueError) as error:
            log.warning("the keys of %s can't be read: %s", self._settings.issuer, error)

    def _ask(self, token: str, digest: bytes) -> Reply | Undecided:
        if self._settings.introspection is None:
            raise TokenRefused(_NOT_A_JWT)
        if self.refused.get(digest, 0.0) > time.monotonic():
            raise TokenRefused(_NOT_ACTIVE)
        if len(self._pending) >= WAITING and digest not in self._pending:
            return SILENT
        return Undecided(lambda: self._shared(digest, lambda: self._introspect(token, digest)))

    async def _introspect(self, token: str, digest: bytes) -> None:
        asking = self._settings.introspection
        if asking is None:
            return
        try:
            answer = _read_answer(await self._issuer.introspect(token, asking))
            self._accept(answer, digest)
        except (IssuerUnavailable, ValueError, RecursionError) as error:
            log.warning("%s can't be asked about a token: %s", self._settings.issuer, error)
        except TokenRefused as error:
            log.debug("a token was refused: %s", error)
            self.refused.pop(digest, None)
            _add(self.refused, digest, time.monotonic() + INACTIVE, MOST_REFUSED)

    def _accept(self, answer: Claims, digest: bytes) -> None:
        kind = answer.get("token_type", "bearer")
        if answer.get("active") is not True or str(kind).lower() not in ("bearer", "access_token"):
            raise TokenRefused(_NOT_ACTIVE)
        self.remember(digest, answer, ASKED, signed=False)

    # Where to get a token

    def metadata(self, path: bytes) -> Reply | None:
        """The protected resource metadata (RFC 9728) at this path; None if there is none."""
        inner = path.removeprefix(METADATA)
        if inner in (b"", self._path):
            inner = b"/mcp"
        elif inner.startswith(self._path + b"/"):
            inner = b"/mcp" + inner.removeprefix(self._path)
        if inner != b"/mcp" and _TOOLBOX.fullmatch(inner) is None:
            return None
        document: dict[str, Any] = {
            "resource": self._resource(inner),
            "authorization_servers": [self._settings.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "MCP Workbench",
        }
        if scopes := self._wanted(inner):
            document["scopes_supported"] = scopes
        return Reply(200, msgspec.json.encode(document), b"Cache-Control: max-age=60\r\n", JSON)

    def step_up(self, path: bytes) -> Reply | None:
        """The refusal of a token that lacks the scope for the toolbox at this path; None if no scope has it."""
        scopes = self._opening(path)
        return self._lacks_scope(path, scopes) if scopes else None

    def _resource(self, path: bytes) -> str:
        return self._settings.resource + path.removeprefix(b"/mcp").decode("latin-1")

    def _opening(self, path: bytes) -> tuple[str, ...]:
        """The scopes that open the toolbox at this path."""
        box = _TOOLBOX.fullmatch(path)
        name = box[1].decode() if box else ""
        return tuple(
            scope
            for scope, boxes in self._settings.scopes
            if name in boxes or (name and ALL_TOOLBOXES in boxes)
        )

    def _wanted(self, path: bytes) -> tuple[str, ...]:
        """The scopes that a host should ask for. At the path of an unknown toolbox these are all."""
        return self._opening(path) or self._scopes

    def _challenge(self, path: bytes, reason: str = "") -> Reply:
        error = f', error="invalid_token", error_description="{reason}"' if reason else ""
        message = f"the token is refused: {reason}" if reason else "a bearer token is needed"
        return refused(401, message, headers=self._header(path, self._wanted(path), error))

    def _lacks_scope(self, path: bytes, scopes: tuple[str, ...]) -> Reply:
        message = "the token opens no toolbox here"
        headers = self._header(path, scopes, ', error="insufficient_scope"')
        return refused(403, message, headers=headers)

    def _header(self, path: bytes, scopes: tuple[str, ...], more: str) -> bytes:
        inner = path if path == b"/mcp" or _TOOLBOX.fullmatch(path) else b"/mcp"
        place = f"{self._path.decode()}{inner.removeprefix(b'/mcp').decode()}"
        url = f"{self._origin}{METADATA.decode()}{place}"
        scope = f', scope="{" ".join(scopes)}"' if scopes else ""
        challenge = f'Bearer realm="mcp-workbench"{more}, resource_metadata="{url}"{scope}'
        return f"WWW-Authenticate: {challenge}\r\n".encode("latin-1")


def _add(table: dict[bytes, Any], key: bytes, value: Any, most: int) -> None:
    """Add an entry; the oldest ones make room."""
    while len(table) >= most:
        del table[next(iter(table))]
    table[key] = value
