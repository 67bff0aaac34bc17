"""The HTTP front: routes, access checks, and dispatch to the era of a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from mcp_workbench.gateway.views import View
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.protocol.handshake import LEGACY
from mcp_workbench.server import parse
from mcp_workbench.server.http.access import (
    CLOSING,
    COUNTED,
    NEVER,
    NOT_FOUND,
    SILENT,
    WRONG_ORIGIN,
    Access,
    Identity,
    Principal,
    over_limit,
    refused,
)
from mcp_workbench.server.http.later_answers import answer_later
from mcp_workbench.server.http.modern import VERSION, ModernExchanges
from mcp_workbench.server.http.sessions import (
    SESSION_ID,
    Admitted,
    Endpoint,
    LegacySessions,
)
from mcp_workbench.server.parse import Message
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.json_text import HUGE
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.long_steps import take_long_steps
from mcp_workbench.transport.tasks import TaskScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp_workbench.server.http.metrics_route import MetricsRoute
    from mcp_workbench.server.http.resource_server import Undecided
    from mcp_workbench.server.http.sign_in_pages import SignInPages
    from mcp_workbench.transport.http.server import HttpServer

COMMENT_EVERY = 15.0  # seconds; proxies close connections that are silent for longer
HEALTH = (b"/healthz", b"/readyz")
PAGES = b"/sign-in/"
UNDECIDED = 128  # requests that wait until the issuer was asked about their tokens
UNDECIDED_BODIES = 2  # times the largest message: bytes of all of them
ENDPOINTS = 1024  # that are kept for people who have signed in and have no session

TOO_MANY_REQUESTS = "this principal sends too many requests for its limits.callsPerMinute"

_LEGACY = frozenset(revision.encode() for revision in LEGACY)
_OK = Reply(200, b"ok")
_DRAINING = Reply(503, b"draining")
_NAMES = re.compile(rb"[A-Za-z0-9_, -]{0,1000}")


class OtherRoutes(Protocol):
    """Paths beside those of hosts, with an access of their own: the web page."""

    def owns(self, path: bytes) -> bool: ...
    def admit(self, request: HttpRequest) -> Reply | None: ...
    def handle(self, request: HttpRequest, response: ResponseWriter) -> None: ...
    def tick(self, at: float) -> None: ...
    def stop(self) -> None: ...


class HttpFront:
    """All hosts of one port."""

    def __init__(self, view: View, scope: TaskScope) -> None:
        self._view = view
        self._scope = scope
        self.access = Access(frozenset())  # allows nothing until the port is known
        self._endpoints: dict[tuple[Principal, bytes], Endpoint] = {}  # by principal and path
        self.undecided = 0  # requests that wait for the issuer
        self._undecided_bytes = 0  # of their bodies
        self._sessions = LegacySessions(lambda: view.snapshot.limits.sessions)
        self._sessions.counted = self._begin_counted
        self._exchanges = ModernExchanges(view.gateway.suspended)
        self._commented = 0.0
        self._pages: SignInPages | None = None  # made for the first visitor
        self.serves: Callable[[HttpServer], None] | None = None  # called when the port is open
        self.page: OtherRoutes | None = None
        self.metrics: MetricsRoute | None = None  # if they are configured

    @property
    def gateway(self) -> Gateway:
        return self._view.gateway

    # Access

    def admit(self, request: HttpRequest) -> Reply | None:
        """Run the checks in their order; the first one that fails replies.

        A request whose token has to be looked up first is admitted as a stranger's; see `_admit_later`.
        """
        path = request.path()
        if path.startswith(PAGES) and self._has_pages:
            return self._admit_visit(request)
        if (foreign := self.access.foreign(request)) is not None:
            page = self.page if foreign is WRONG_ORIGIN else None
            if page is not None and page.owns(path):  # it allows its own origin, and no other
                return page.admit(request)
            return foreign
        if path != b"/mcp" and not path.startswith(b"/mcp/"):
            return self._admit_beside(request, path)
        version = request.headers.get(VERSION)
        modern = version is not None and version not in _LEGACY
        if (wrong := self._wrong_verb(request, modern=modern)) is not None:
            return wrong
        identity = self.access.identify(request, path)
        if isinstance(identity, Identity):
            return self._admit_known(request, path, identity, modern=modern)
        if isinstance(identity, Reply):
            return identity
        request.admitted = identity
        request.from_stranger = True
        return None

    def _admit_beside(self, request: HttpRequest, path: bytes) -> Reply | None:
        """Check a request to a path that no host uses for messages."""
        if path in HEALTH:
            return self._health(request, path)
        if self.page is not None and self.page.owns(path):
            return self.page.admit(request)
        if self.metrics is not None and path == b"/metrics":
            return self.metrics.admit(request)
        return self._metadata(request, path) or NOT_FOUND

    @property
    def _has_pages(self) -> bool:
        return self._pages is not None or self._view.snapshot.has_principals

    def _admit_visit(self, request: HttpRequest) -> Reply | None:
        """Check a browser that comes to a sign-in page. Nobody is known there."""
        if self._pages is None:
            from mcp_workbench.server.http.sign_in_pages import SignInPages  # rarely needed

            self._pages = SignInPages(self.gateway, lambda: self.access)
        return self._pages.admit(request)

    def _admit_known(
        self, request: HttpRequest, path: bytes, identity: Identity, *, modern: bool
    ) -> Reply | None:
        principal, until = identity.principal, identity.until
        quotas = self.gateway.quotas
        if quotas is not None and quotas.limits(principal.name) is not None:
            if wait := quotas.request(principal.name):
                return over_limit(TOO_MANY_REQUESTS, wait)
            until = COUNTED if until is NEVER else until
        endpoint = self._endpoints.get((principal, path)) or self._create_endpoint(principal, path)
        if endpoint is None:
            return self._step_up(principal, path) or NOT_FOUND
        if endpoint.gone and not self._sessions.knows(request, endpoint):
            return NOT_FOUND
        if (unreadable := self.access.unreadable(request)) is not None:
            return unreadable
        snapshot = self._view.snapshot
        request.admitted = Admitted(
            endpoint,
            principal,
            modern,
            self.access,
            snapshot,
            until=until,
            host=request.headers.get(b"host", b""),
        )
        return CLOSING if self._sessions.closing and not _may_go_on(request) else None

    async def _admit_later(
        self, request: HttpRequest, response: ResponseWriter, undecided: Undecided
    ) -> None:
        """Check the request once more when the issuer was asked about its token."""
        reply = CLOSING
        try:
            await undecided.wait()
            reply = self.admit(request)
        finally:
            self.undecided -= 1
            self._undecided_bytes -= len(request.body)
            if reply is not None:
                response.plain(reply)
        if reply is None and len(request.body) > HUGE:
            await take_long_steps(self.read_ahead(request))
        if reply is None and not response.over:  # a host that is gone waits for nothing
            self.handle(request, response)

    def still_admits(self, request: HttpRequest) -> bool:
        admitted: Admitted | Undecided | SignInPages | MetricsRoute = request.admitted
        return (
            isinstance(admitted, Admitted)
            and admitted.access is self.access
            and admitted.snapshot is self._view.scope.snapshot
            and not self._sessions.closing
            and (admitted.until is NEVER or self._holds(admitted))
        )

    def _holds(self, admitted: Admitted) -> bool:
        """Whether the token is still valid, and this request not one too many; if so, it is counted."""
        issuer = self.access.issuer
        if admitted.until != NEVER and (issuer is None or not issuer.holds(admitted.until)):
            return False
        quotas = self.gateway.quotas
        return quotas is None or not quotas.request(admitted.principal.name)

    def _begin_counted(
        self, message: Message, response: ResponseWriter, admitted: Admitted
    ) -> bool:
        """Take an `initialize` of a principal that has a limit of sessions; False if it has none."""
        quotas = self.gateway.quotas
        if quotas is None or quotas.sessions(admitted.principal.name) is None:
            return False
        from mcp_workbench.server.http.session_limits import CountedStart  # few have limits

        start = CountedStart(self._sessions, quotas, message, response, admitted)
        if (later := start.run()) is not None:
            answer_later(self._scope, later, response, "session")
        return True

    def _metadata(self, request: HttpRequest, path: bytes) -> Reply | None:
        """Where to get a token, for hosts that have none; None if there is no issuer, or no such path."""
        issuer = self.access.issuer
        if issuer is None or not path.startswith(b"/.well-known/"):
            return None
        document = issuer.metadata(path)
        if document is None or request.method == b"GET":
            return document
        return self._wrong_verb(request, modern=True, allowed=b"GET")

    def _step_up(self, principal: Principal, path: bytes) -> Reply | None:
        """Tell somebody who has signed in which scope opens this toolbox; None if it is hidden."""
        name = path.removeprefix(b"/mcp/").decode("latin-1")
        issuer = self.access.issuer
        if issuer is None or not principal.signed_in or name not in self._view.snapshot.toolboxes:
            return None
        return issuer.step_up(path)

    def _health(self, request: HttpRequest, path: bytes) -> Reply:
        if request.method != b"GET":
            return Reply(405, b"GET only", b"Allow: GET\r\n")
        return _DRAINING if self._sessions.closing and path == b"/readyz" else _OK

    def _wrong_verb(
        self, request: HttpRequest, *, modern: bool, allowed: bytes = b""
    ) -> Reply | None:
        method = request.method
        if not allowed and (method == b"POST" or (not modern and method in (b"GET", b"DELETE"))):
            return None
        if method == b"OPTIONS" and b"origin" in request.headers and request.reply_headers:
            return _preflight(request.headers.get(b"access-control-request-headers", b""))
        allowed = allowed or (b"POST" if modern else b"POST, GET, DELETE")
        return refused(405, "method not allowed", headers=b"Allow: %b\r\n" % allowed)

    def _create_endpoint(self, principal: Principal, path: bytes) -> Endpoint | None:
        """The endpoint of a path; None for a toolbox that this principal may not use."""
        shows, opened = principal.sees, ()
        if path != b"/mcp":
            name = path.removeprefix(b"/mcp/").decode("latin-1")
            if name not in self._view.snapshot.toolboxes or not principal.sees(name):
                return None
            shows, opened = name.__eq__, (name,)
        view = self._view.narrowed(
            shows,
            principal=principal.name,
            account=principal.account,
            private=self.access.differ,
        )
        if principal.signed_in:
            self._forget_idle()
        endpoint = Endpoint(view, self._scope, opened)
        return self._endpoints.setdefault((principal, path), endpoint)

    def _forget_idle(self) -> None:
        """Make room among very many people: those go who have no session."""
        if len(self._endpoints) < ENDPOINTS:
            return
        idle = [
            key
            for key in self._endpoints
            if key[0].signed_in and not self._sessions.has_any(key[0].name)
        ]
        for key in idle[: ENDPOINTS // 4]:
            del self._endpoints[key]

    # Requests

    def read_ahead(self, request: HttpRequest) -> Iterator[None]:
        if not isinstance(request.admitted, Admitted) or jsonrpc.is_batch(request.body):
            return
        try:
            request.read = yield from parse.read_body_in_steps(request.body)
        except Malformed as error:
            request.read = error.with_traceback(None)  # which would keep the body until collected

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        if not isinstance(request.admitted, Admitted):
            self._handle_other(request, response)
        elif request.admitted.modern:
            if self._sessions.closing:  # since it was admitted
                response.plain(CLOSING)
            else:
                self._exchanges.handle(request, response)
        else:
            self._sessions.handle(request, response)

    def _handle_other(self, request: HttpRequest, response: ResponseWriter) -> None:
        admitted = request.admitted
        if self.page is not None and admitted is self.page:
            self.page.handle(request, response)
        elif self.metrics is not None and admitted is self.metrics:
            accept = request.headers.get(b"accept", b"")
            answer_later(self._scope, self.metrics.respond(accept, response), response, "metrics")
        elif self._pages is not None and admitted is self._pages:
            visit = self._pages.visit(_copy(request), response)
            answer_later(self._scope, visit, response, "sign-in page")
        else:
            self._handle_undecided(request, response)

    def _handle_undecided(self, request: HttpRequest, response: ResponseWriter) -> None:
        """Ask the issuer, unless it was asked in vain, or too much waits for it already."""
        most = UNDECIDED_BODIES * self._view.snapshot.limits.message_bytes
        size = self._undecided_bytes + len(request.body)
        if request.asked or self.undecided >= UNDECIDED or size > most:
            response.plain(SILENT)
            return
        own = _copy(request)
        own.asked = True
        self.undecided += 1
        self._undecided_bytes = size
        later = self._admit_later(own, response, request.admitted)
        answer_later(self._scope, later, response, "token")

    # Time

    def tick(self, now: float) -> None:
        """Start late streams, write comments to silent ones, end idle sessions."""
        comment = now - self._commented >= COMMENT_EVERY
        if comment:
            self._commented = now
        self._exchanges.tick(now, comment=comment)
        self._sessions.tick(now, comment=comment)
        if self.page is not None:
            self.page.tick(now)

    @property
    def sessions(self) -> int:
        """How many sessions legacy hosts have."""
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        """Whether a host waits for a reply."""
        return self._exchanges.busy or self._sessions.busy or self.undecided > 0

    def stop(self) -> None:
        """Accept no new requests, and end the streams that wait for nothing."""
        self._sessions.stop()
        self._exchanges.stop()
        if self.page is not None:
            self.page.stop()

    def close(self) -> None:
        """Cancel what is still in flight."""
        self._exchanges.close()
        self._sessions.close()
        if self.access.issuer is not None:
            self.access.issuer.close()


def _copy(request: HttpRequest) -> HttpRequest:
    """One for a task: the request itself may be used again before that runs."""
    from copy import copy  # rarely needed

    return copy(request)


def _may_go_on(request: HttpRequest) -> bool:
    """Whether this may be a response or a cancellation of a legacy host, for a request in flight."""
    return (
        request.method == b"POST" and not request.admitted.modern and SESSION_ID in request.headers
    )


def _preflight(wanted: bytes) -> Reply:
    """Allow every header to a page of an allowed origin: the request itself is checked later."""
    names = b"Access-Control-Allow-Headers: %b\r\n" % wanted if _NAMES.fullmatch(wanted) else b""
    verbs = b"Access-Control-Allow-Methods: POST, GET, DELETE\r\n"
    return Reply(204, headers=b"%b%bAccess-Control-Max-Age: 600\r\n" % (verbs, names))
