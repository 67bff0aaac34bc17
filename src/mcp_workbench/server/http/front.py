"""The HTTP front: routes, access checks, and dispatch to the era of a request."""

from __future__ import annotations

import re

from mcp_workbench.gateway.views import View
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.protocol.handshake import LEGACY
from mcp_workbench.server.http.access import CLOSING, NOT_FOUND, Access, Principal, refused
from mcp_workbench.server.http.modern import VERSION, ModernExchanges
from mcp_workbench.server.http.sessions import (
    SESSION_ID,
    Admitted,
    Endpoint,
    LegacySessions,
)
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.tasks import TaskScope

COMMENT_EVERY = 15.0  # seconds; proxies close connections that are silent for longer
HEALTH = (b"/healthz", b"/readyz")

_LEGACY = frozenset(revision.encode() for revision in LEGACY)
_OK = Reply(200, b"ok")
_DRAINING = Reply(503, b"draining")
_NAMES = re.compile(rb"[A-Za-z0-9_, -]{0,1000}")


class HttpFront:
    """All hosts of one port."""

    def __init__(self, view: View, scope: TaskScope) -> None:
        self._view = view
        self._scope = scope
        self.access = Access(frozenset())  # allows nothing until the port is known
        self._endpoints: dict[tuple[str, bytes], Endpoint] = {}  # by principal and path
        self._sessions = LegacySessions(lambda: view.snapshot.limits.sessions)
        self._exchanges = ModernExchanges(view.gateway.suspended)
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
        snapshot = self._view.snapshot
        request.admitted = Admitted(endpoint, principal, modern, self.access, snapshot)
        return CLOSING if self._sessions.closing and not _may_go_on(request) else None

    def still_admits(self, request: HttpRequest) -> bool:
        admitted: Admitted = request.admitted
        return (
            admitted.access is self.access
            and admitted.snapshot is self._view.scope.snapshot
            and not self._sessions.closing
        )

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
        if request.admitted.modern:
            self._exchanges.handle(request, response)
        else:
            self._sessions.handle(request, response)

    # Time

    def tick(self, now: float) -> None:
        """Start late streams, write comments to silent ones, end idle sessions."""
        comment = now - self._commented >= COMMENT_EVERY
        if comment:
            self._commented = now
        self._exchanges.tick(now, comment=comment)
        self._sessions.tick(now, comment=comment)

    @property
    def busy(self) -> bool:
        """Whether a host waits for a reply."""
        return self._exchanges.busy or self._sessions.busy

    def stop(self) -> None:
        """Accept no new requests, and end the streams that wait for nothing."""
        self._sessions.stop()
        self._exchanges.stop()

    def close(self) -> None:
        """Cancel what is still in flight."""
        self._exchanges.close()
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
