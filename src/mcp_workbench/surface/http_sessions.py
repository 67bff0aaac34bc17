"""Legacy hosts over HTTP: which session a request belongs to, and when one ends."""

from __future__ import annotations

from secrets import token_urlsafe

from mcp_workbench.era.revision import BATCHES, HEADER_MISMATCH, VERSION_KEY
from mcp_workbench.surface import parse
from mcp_workbench.surface.endpoint import Endpoint
from mcp_workbench.surface.http_modern import VERSION
from mcp_workbench.surface.http_principals import Principal
from mcp_workbench.surface.http_refusals import CLOSING, TOO_MANY, refused
from mcp_workbench.surface.http_session import LegacySession
from mcp_workbench.surface.parse import Message, RequestError, UseToolRequest
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Malformed
from mcp_workbench.wire.http_message import Reply, Request
from mcp_workbench.wire.http_response import Response

SESSIONS = 1000
LONGEST_ID = 40  # of an event: two counters
SESSION_ID = b"mcp-session-id"
LAST_EVENT = b"last-event-id"

_MODERN_MARK = VERSION_KEY.encode()


class Sessions:
    """All legacy sessions of a port."""

    def __init__(self) -> None:
        self.now = 0.0
        self.closing = False
        self._sessions: dict[str, LegacySession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        return any(session.busy for session in self._sessions.values())

    def handle(
        self, request: Request, response: Response, endpoint: Endpoint, principal: Principal
    ) -> None:
        """Answer a request of a legacy host, whose head has been judged."""
        if request.method == b"POST":
            self._post(request, response, endpoint, principal)
            return
        session = self._known(request, endpoint, principal)
        if session is None:
            response.plain(_no_session(request))
        elif request.method == b"DELETE":
            del self._sessions[session.id]
            session.close()
            response.plain(Reply(200))
        elif _is_event_id(last := request.headers.get(LAST_EVENT, b"")):
            session.listen(response, last)
        else:
            response.plain(refused(400, "Last-Event-ID is none of ours"))

    def _post(
        self, request: Request, response: Response, endpoint: Endpoint, principal: Principal
    ) -> None:
        body = request.body
        batch = envelope.is_batch(body)
        try:
            messages = _read_batch(body) if batch else [parse.read_body(body)]
        except Malformed as error:
            response.plain(refused(400, str(error), id=error.id, code=error.code))
            return
        first = messages[0]
        if VERSION not in request.headers and _MODERN_MARK in body and _is_modern(first):
            told = "MCP-Protocol-Version is missing"
            response.plain(refused(400, told, id=bytes(first.id), code=HEADER_MISMATCH))
            return
        if first.method == "initialize" and first.id and not batch:
            self._initialize(first, response, endpoint, principal)
            return
        session = self._known(request, endpoint, principal)
        if session is None:
            response.plain(_no_session(request, bytes(first.id)))
            return
        ids = [bytes(m.id) for m in messages if m.method and m.id]
        if ids and self.closing:
            response.plain(CLOSING)
        elif problem := _unusable(session, messages, ids, batch=batch):
            response.plain(refused(400, problem))
        else:
            session.post(response, messages, ids, batch=batch)

    def _initialize(
        self, message: Message, response: Response, endpoint: Endpoint, principal: Principal
    ) -> None:
        if self._full(principal):
            response.plain(TOO_MANY)
            return
        session = LegacySession(token_urlsafe(24), principal.name, endpoint, self.now)
        session.post(response, [message], [bytes(message.id)])
        if session.revision:
            self._sessions[session.id] = session
        else:
            session.close()

    def _full(self, principal: Principal) -> bool:
        """Is there no room, or has this principal its share already?"""
        if len(self._sessions) >= SESSIONS:
            return True
        if principal.among == 1:
            return False
        own = sum(session.principal == principal.name for session in self._sessions.values())
        return own >= max(1, SESSIONS // principal.among)

    def knows(self, request: Request, endpoint: Endpoint) -> bool:
        """Does the request name a session of this endpoint?"""
        session = self._sessions.get(request.headers.get(SESSION_ID, b"").decode("latin-1"))
        return session is not None and session.endpoint is endpoint

    def _known(
        self, request: Request, endpoint: Endpoint, principal: Principal
    ) -> LegacySession | None:
        """The session that the request names; somebody else's is none."""
        session = self._sessions.get(request.headers.get(SESSION_ID, b"").decode("latin-1"))
        if (
            session is None
            or session.endpoint is not endpoint
            or session.principal != principal.name
        ):
            return None
        session.touched = self.now
        return session

    def tick(self, now: float, *, comment: bool) -> None:
        self.now = now
        for session in tuple(self._sessions.values()):
            session.tick(now, comment=comment)
            if session.expired(now):
                del self._sessions[session.id]
                session.close()

    def stop(self) -> None:
        """Begin nothing new, and end the streams that wait for nothing."""
        self.closing = True
        for session in self._sessions.values():
            session.stop_listening()

    def close(self) -> None:
        while self._sessions:
            self._sessions.popitem()[1].close()


def _no_session(request: Request, id: bytes = b"") -> Reply:
    if not request.headers.get(SESSION_ID):
        return refused(400, "Mcp-Session-Id is missing: send initialize first", id=id)
    return refused(404, "Session not found: send initialize again", id=id)


def _is_modern(message: Message) -> bool:
    try:
        if isinstance(message, UseToolRequest):
            return parse.is_stamped(parse.read_meta(message.params.meta))
        return parse.is_stamped(parse.read_meta(parse.read_params(message.params).get("_meta")))
    except RequestError:
        return False


def _read_batch(body: bytes) -> list[Message]:
    members = envelope.read_batch(envelope.one_line(body))
    if not members:
        raise Malformed(envelope.INVALID_REQUEST, "a batch holds at least one message")
    return [parse.read(member) for member in members]


def _unusable(
    session: LegacySession, messages: list[Message], ids: list[bytes], *, batch: bool
) -> str:
    """Why these messages can't be taken; empty if they can."""
    for id in ids:
        if not envelope.usable_id(id):
            return "id must be a string or an integer"
        if session.uses(id):
            return "id is in use"
    if not batch:
        return ""
    if session.revision != BATCHES:
        return f"a batch is possible in {BATCHES} only"
    if len(set(ids)) < len(ids):
        return "id is in use"
    if any(m.method == "initialize" for m in messages):
        return "initialize can't be part of a batch"
    return ""


def _is_event_id(value: bytes) -> bool:
    if not value:
        return True
    number, _, count = value.partition(b"-")
    return number.isdigit() and count.isdigit() and len(value) < LONGEST_ID
