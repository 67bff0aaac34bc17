"""The HTTP front: routes, access checks, and dispatch to the era of a request."""

from __future__ import annotations

import re

import msgspec

from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.gateway.views import View
from mcp_workbench.protocol.revisions import LEGACY, MODERN
from mcp_workbench.server import parse
from mcp_workbench.server.elicitation import InputRequests
from mcp_workbench.server.http.access import CLOSING, NOT_FOUND, Access, Principal, refused
from mcp_workbench.server.http.modern import VERSION, ModernExchange, check_modern, status_of
from mcp_workbench.server.http.sessions import SESSION_ID, SILENCE, Endpoint, LegacySessions
from mcp_workbench.server.parse import RequestError
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.messages import JSON, HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.tasks import TaskScope

COMMENT_EVERY = 15.0  # seconds; proxies close connections that are silent for longer
HEALTH = (b"/healthz", b"/readyz")

_LEGACY = frozenset(revision.encode() for revision in LEGACY)
_OK = Reply(200, b"ok")
_DRAINING = Reply(503, b"draining")
_NAMES = re.compile(rb"[A-Za-z0-9_, -]{0,1000}")


class Admitted(msgspec.Struct, frozen=True):
    """A request that has passed the checks: its endpoint, principal and era."""

    endpoint: Endpoint
    principal: Principal
    modern: bool


class HttpFront:
    """All hosts of one port."""

    def __init__(self, view: View, scope: TaskScope) -> None:
        self._view = view
        self._scope = scope
        self.access = Access(frozenset())  # allows nothing until the port is known
        self._endpoints: dict[tuple[str, bytes], Endpoint] = {}  # by principal and path
        self._sessions = LegacySessions()
        self._exchanges: set[ModernExchange] = set()
        self._input_requests: dict[str, InputRequests] = {}  # by principal
        self._now = 0.0
        self._commented = 0.0

    @property
    def gateway(self) -> Gateway:
        return self._view.gateway

    # Access

    def admit(self, request: HttpRequest) -> Reply | None:
        """Run the checks in their order; the first one that fails replies."""
        if (foreign := self.access.foreign(request)) is not None:
            return foreign
        path = request.path()
        if path in HEALTH:
            return self._health(request, path)
        if path != b"/mcp" and not path.startswith(b"/mcp/"):
            return NOT_FOUND
        version = request.headers.get(VERSION)
        modern = version is not None and version not in _LEGACY
        if (wrong := self._wrong_verb(request, modern=modern)) is not None:
            return wrong
        principal = self.access.principal(request)
        if isinstance(principal, Reply):
            return principal
        endpoint = self._endpoints.get((principal.name, path)) or self._create_endpoint(
            principal, path
        )
        if endpoint is None or (endpoint.gone and not self._sessions.knows(request, endpoint)):
            return NOT_FOUND
        if (unreadable := self.access.unreadable(request)) is not None:
            return unreadable
        request.admitted = Admitted(endpoint, principal, modern)
        return CLOSING if self._sessions.closing and not _may_go_on(request) else None

    def _health(self, request: HttpRequest, path: bytes) -> Reply:
        if request.method != b"GET":
            return Reply(405, b"GET only", b"Allow: GET\r\n")
        return _DRAINING if self._sessions.closing and path == b"/readyz" else _OK

    def _wrong_verb(self, request: HttpRequest, *, modern: bool) -> Reply | None:
        method = request.method
        if method == b"POST" or (not modern and method in (b"GET", b"DELETE")):
            return None
        if method == b"OPTIONS" and b"origin" in request.headers and request.reply_headers:
            return _preflight(request.headers.get(b"access-control-request-headers", b""))
        allowed = b"POST" if modern else b"POST, GET, DELETE"
        return refused(405, "method not allowed", headers=b"Allow: %b\r\n" % allowed)

    def _create_endpoint(self, principal: Principal, path: bytes) -> Endpoint | None:
        """The endpoint of a path; None for a toolbox that this principal may not use."""
        shows, opened = principal.sees, ()
        if path != b"/mcp":
            name = path.removeprefix(b"/mcp/").decode("latin-1")
            if name not in self._view.snapshot.toolboxes or not principal.sees(name):
                return None
            shows, opened = name.__eq__, (name,)
        view = self._view.narrowed(shows, principal=principal.name, private=self.access.differ)
        endpoint = Endpoint(view, self._scope, opened)
        return self._endpoints.setdefault((principal.name, path), endpoint)

    # Requests

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        admitted: Admitted = request.admitted
        if admitted.modern:
            self._handle_modern(request, response)
        else:
            self._sessions.handle(request, response, admitted.endpoint, admitted.principal)

    def _handle_modern(self, request: HttpRequest, response: ResponseWriter) -> None:
        try:
            message = parse.read_body(request.body)
        except Malformed as error:
            response.plain(refused(400, str(error), id=error.id, code=error.code))
            return
        id = bytes(message.id)
        if not message.method or (id and not jsonrpc.usable_id(id)):
            problem = "one request or notification is expected, with a usable id"
            response.plain(refused(400, problem))
            return
        if not id:
            response.plain(Reply(202))  # a notification: this revision has none over HTTP
            return
        try:
            check_modern(request, message, request.admitted.endpoint.definition)
        except RequestError as refusal:
            frame = jsonrpc.refusal(id, refusal.error)
            response.plain(Reply(status_of(frame, id), frame, kind=JSON))
            return
        self._exchange(request.admitted, message, response)

    def _exchange(
        self, admitted: Admitted, message: parse.Message, response: ResponseWriter
    ) -> None:
        exchange = ModernExchange(response, bytes(message.id), self._now)
        session = admitted.endpoint.exchange(
            exchange, self._open_input_requests(admitted.principal.name)
        )
        session.era.revision = MODERN

        def close() -> None:
            self._exchanges.discard(exchange)
            session.close()

        self._exchanges.add(exchange)
        exchange.on_close(close, lambda: session.when_idle(exchange.close))
        session.receive(message)

    def _open_input_requests(self, principal: str) -> InputRequests:
        """Questions outlive the request that led to them; only the same principal may answer."""
        if principal not in self._input_requests:
            suspended = self._view.gateway.suspended
            self._input_requests[principal] = InputRequests(principal, suspended)
        return self._input_requests[principal]

    # Time

    def tick(self, now: float) -> None:
        """Start late streams, write comments to silent ones, end idle sessions."""
        self._now = now
        comment = now - self._commented >= COMMENT_EVERY
        if comment:
            self._commented = now
        for exchange in tuple(self._exchanges):
            if now - exchange.since >= SILENCE:
                exchange.commit()
            if comment:
                exchange.comment()
        self._sessions.tick(now, comment=comment)

    @property
    def busy(self) -> bool:
        """Whether a host waits for a reply."""
        return bool(self._exchanges) or self._sessions.busy

    def stop(self) -> None:
        """Accept no new requests, and end the streams that wait for nothing."""
        self._sessions.stop()
        for exchange in tuple(self._exchanges):
            exchange.finish()

    def close(self) -> None:
        """Cancel what is still in flight."""
        for exchange in tuple(self._exchanges):
            exchange.end()
        self._sessions.close()


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
