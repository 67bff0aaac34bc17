"""Sessions over HTTP: endpoints, which create them, and the legacy sessions of a port.

A legacy session outlives its requests: every message for its host goes to exactly one of its streams.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import msgspec

from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.views import View
from mcp_workbench.protocol.handshake import BATCHES, HEADER_MISMATCH, NEWEST_LEGACY, VERSION_KEY
from mcp_workbench.server import parse
from mcp_workbench.server.elicitation import InputRequests
from mcp_workbench.server.http.access import (
    CLOSING,
    NEVER,
    TOO_MANY,
    Access,
    Principal,
    refused,
)
from mcp_workbench.server.http.modern import VERSION, read_before
from mcp_workbench.server.http.streams import (
    SILENCE,
    EventStream,
    PostStream,
    Recorder,
    is_event_id,
)
from mcp_workbench.server.parse import Message, RequestError, UseToolRequest, cancelled_id
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.stdio import Channel
from mcp_workbench.transport.tasks import TaskScope

IDLE = 1800.0  # seconds without a request or a stream until a session ends
KEPT = 60.0  # seconds for which the end of a broken stream is kept for its host
KEPT_STREAMS = 16  # per session; older ones are dropped
FEW_EXPIRIES = 64  # of sessions that have ended: with more, they are dropped before their time
SESSION_ID = b"mcp-session-id"
LAST_EVENT = b"last-event-id"

_CANCELLED = "notifications/cancelled"
_MODERN_MARK = VERSION_KEY.encode()


class Endpoint:
    """One path of the HTTP front for one principal: all its toolboxes, or one."""

    def __init__(self, view: View, scope: TaskScope, opened: tuple[str, ...] = ()) -> None:
        self._view = view
        self._scope = scope
        self._opened = opened
        self._tool_view = ToolView(view, opened)

    @property
    def path(self) -> str:
        return f"/mcp/{self._opened[0]}" if self._opened else "/mcp"

    @property
    def bare(self) -> bool:
        """Whether its tools have their servers' names, so that any of them may be named like ours."""
        return self._tool_view.bare

    @property
    def gone(self) -> bool:
        """Whether its one toolbox was removed. Calls in existing sessions fail with that reason."""
        return bool(self._opened) and not self._view.snapshot.toolboxes

    def session(self, channel: Channel) -> HostSession:
        """A session with a tool view of its own: toolboxes that it opens stay open."""
        self._tool_view.refresh()
        tool_view = ToolView(self._view, self._opened, self._tool_view.definitions)
        asked = "by its own servers"
        session = HostSession(self._view, channel, self._scope, tool_view, asked=asked)
        session.door = "http"
        return session

    def exchange(self, channel: Channel, input_requests: InputRequests) -> HostSession:
        """A session of one request; questions to it are answered by another request."""
        session = HostSession(
            self._view,
            channel,
            self._scope,
            self._tool_view,
            asked="by its own servers",
            input_requests=input_requests,
        )
        session.door = "http"
        return session

    def definition(self, name: str) -> bytes:
        """The definition of a tool as it was listed under this name, if that is known without asking."""
        tool = self._tool_view.known(name)
        if tool is None:
            return b""
        toolbox = self._view.snapshot.toolboxes.get(tool.toolbox)
        spec = toolbox.servers.get(tool.server) if toolbox else None
        if spec is None:
            return b""
        catalogues = [connection.catalogue for connection in self._view.live([spec])]
        if not catalogues and (known := self._view.remembered(spec)) is not None:
            catalogues = [known.catalogue]  # the host's list came from there
        listed = (catalogue.tools.get(tool.tool) for catalogue in catalogues)
        return next((definition.raw for definition in listed if definition is not None), b"")


class Admitted(msgspec.Struct, eq=False):
    """A request that has passed the checks, what they depended on, and what its head alone determines."""

    endpoint: Endpoint
    principal: Principal
    modern: bool
    access: Access
    snapshot: Snapshot
    session: LegacySession | None = None  # that the head names
    checked_meta: bytes = b""  # `_meta` of a call of use_tool that was found to match the head
    until: float = NEVER  # seconds since the epoch: so long its token holds
    host: bytes = b""  # the name by which the port was reached

    def public_origin(self) -> str:
        """Where the person behind this request reaches our pages."""
        return self.access.public_origin(self.host)


OnInitialize = Callable[[Message, ResponseWriter, Admitted], bool]  # whether it is handled there


class LegacySession:
    """One legacy host. It is the channel of its session: a frame goes to the POST that it is about."""

    backlog = 0
    is_open = True
    _standalone: EventStream | None = None
    recorder: Recorder | None = None  # with replicas

    def __init__(
        self, id: str, principal: str, endpoint: Endpoint, sessions: LegacySessions
    ) -> None:
        self.id = id
        self.principal = principal
        self.endpoint = endpoint
        self.touched = sessions.now
        self._sessions = sessions
        self._posts: dict[bytes, PostStream] = {}  # by the request that waits for it
        self._ended: dict[int, PostStream] | None = None  # whose host may come back for the rest
        self._streams = 0
        self.host = endpoint.session(self)

    @property
    def revision(self) -> str:
        return self.host.era.revision

    @property
    def busy(self) -> bool:
        return bool(self._posts)

    # Out

    def send(self, frame: bytes, about: bytes = b"") -> None:
        post = self._posts.get(about) if about else None
        if post is None:
            if not (about and jsonrpc.answers(frame, about)):  # nobody waits for that reply
                self.standalone.send(frame)
        elif jsonrpc.answers(frame, about):
            del self._posts[about]
            if post.headers and jsonrpc.is_refusal(frame, about):
                post.headers = b""  # there is no session
            post.answer(about, frame)
            if post.committed:
                self._keep(post)
        else:
            post.notice(frame)

    def number_from(self, first: int) -> None:
        """Number streams and events from here on: its host has seen those of another replica."""
        self._streams = first
        self.standalone.number_from(first)

    @property
    def standalone(self) -> EventStream:
        """The stream for messages that belong to no request."""
        if self._standalone is None:
            self._standalone = EventStream(0, primes=self._primes, on_detached=self._detached)
            self._standalone.recorder = self.recorder
        return self._standalone

    @property
    def _primes(self) -> bool:
        return self.revision == NEWEST_LEGACY

    def _detached(self) -> None:
        self.touched = self._sessions.now
        self._sessions.listening.discard(self)

    def _keep(self, post: PostStream) -> None:
        if post.complete and post.resumable:
            post.over = self._sessions.now
            ended = self._ended = {} if self._ended is None else self._ended
            ended[post.number] = post
            if len(ended) > KEPT_STREAMS:
                del ended[next(iter(ended))]

    # In

    def uses(self, id: bytes) -> bool:
        return id in self._posts

    def call(self, response: ResponseWriter, message: UseToolRequest) -> bool:
        """Handle the most frequent request; False, and nothing done, if something about it is unusual."""
        id = bytes(message.id)
        if message.params.meta or id in self._posts or not jsonrpc.usable_id(id):
            return False
        self._await_replies(response, [id])
        self.host.receive(message)
        return True

    def post(
        self,
        response: ResponseWriter,
        messages: list[Message],
        ids: list[bytes],
        *,
        batch: bool = False,
    ) -> None:
        """Handle the messages of one POST; `ids` are those of its requests."""
        if ids:
            post = self._await_replies(response, ids)
            post.batch = batch
            if messages[0].method == "initialize":
                post.headers = b"Mcp-Session-Id: %b\r\n" % self.id.encode()
        else:
            response.plain(Reply(202))
        for message in messages:
            self.receive(message)

    def receive(self, message: Message) -> None:
        self.host.receive(message)
        if not isinstance(message, UseToolRequest) and message.method == _CANCELLED:
            self._cancelled(cancelled_id(message))

    def _await_replies(self, response: ResponseWriter, ids: list[bytes]) -> PostStream:
        sessions = self._sessions
        self.touched = sessions.now
        sessions.active.add(self)
        self._streams += 1
        primes = self.host.era.revision == NEWEST_LEGACY
        post = PostStream(self._streams, response, ids, sessions.now, primes=primes)
        if self.recorder is not None:
            post.recorder = self.recorder
        for id in ids:
            self._posts[id] = post
        return post

    def _cancelled(self, id: bytes) -> None:
        post = self._posts.pop(id, None)
        if post is not None:
            post.settle(id)
            self._keep(post)

    def listen(self, response: ResponseWriter, last: bytes) -> None:
        """Handle a GET: the standalone stream, or one that broke and resumes after the event `last`."""
        number, _, count = last.partition(b"-")
        if not last or int(number) == 0:
            self._sessions.listening.add(self)
            self.standalone.attach(response, int(count) if last else None)
            return
        stream = self._resumed(int(number))
        if stream is None:
            response.plain(refused(400, "this stream is not kept any more"))
            return
        stream.attach(response, int(count))
        if stream.complete:
            stream.end()

    def _resumed(self, number: int) -> PostStream | None:
        for post in self._posts.values():
            if post.number == number and post.resumable:
                return post
        return None if self._ended is None else self._ended.get(number)

    # Time

    def tick(self, now: float, *, comment: bool) -> bool:
        """Start late streams, drop what is kept too long. Returns whether there is more to do later."""
        if self._posts:
            self.touched = now
        for post in set(self._posts.values()):
            if now - post.since >= SILENCE:
                post.commit_late()
            if comment:
                post.comment()
        if self._ended:
            kept = {n: post for n, post in self._ended.items() if now - post.over <= KEPT}
            self._ended = kept or None
        return bool(self._posts or self._ended)

    def comment(self) -> None:
        if self._standalone is not None:
            self._standalone.comment()

    @property
    def expires(self) -> float:
        """When it ends if nothing happens until then."""
        is_used = self._posts or self in self._sessions.listening
        return (self._sessions.now if is_used else self.touched) + IDLE

    def stop_listening(self) -> None:
        if self._standalone is not None:
            self._standalone.end()

    def close(self) -> None:
        """End the session: cancel its requests and end every stream."""
        self.is_open = False
        self.host.close()
        self.stop_listening()
        posts = set(self._posts.values())
        self._posts.clear()
        for post in posts:
            post.abandon()


class LegacySessions:
    """All legacy sessions of a port. An idle one costs nothing until it expires."""

    def __init__(self, most: Callable[[], int]) -> None:
        self.now = 0.0
        self.closing = False
        # They wait for a reply, or keep the end of a stream.
        self.active: set[LegacySession] = set()
        self.listening: set[LegacySession] = set()  # with a standalone stream
        self._most = most  # sessions at once, as configured now
        self.counted: OnInitialize | None = None  # takes those of principals with own limits
        self._sessions: dict[str, LegacySession] = {}
        self._counts: Counter[str] = Counter()  # by principal
        self._expiries: list[tuple[float, str]] = []  # a heap: when to check which session
        # With replicas, each session is written down for the others.
        self.new_id = _new_id
        self.on_new: Callable[[LegacySession, Message], None] | None = None
        self.on_end: Callable[[LegacySession], None] | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        return any(session.busy for session in self.active)

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        """Answer a request of a legacy host that has passed the access checks."""
        if request.method == b"POST":
            self._post(request, response)
            return
        session = self._known(request)
        if session is None:
            response.plain(_no_session(request))
        elif request.method == b"DELETE":
            self.end(session)
            response.plain(Reply(200))
        elif is_event_id(last := request.headers.get(LAST_EVENT, b"")):
            session.listen(response, last)
        else:
            response.plain(refused(400, "Last-Event-ID is none of ours"))

    def _post(self, request: HttpRequest, response: ResponseWriter) -> None:
        body = request.body
        if jsonrpc.is_batch(body):
            self._post_batch(request, response)
            return
        try:
            message = parse.read_body(body) if request.read is None else read_before(request)
        except Malformed as error:
            response.plain(refused(400, str(error), id=error.id, code=error.code))
            return
        session: LegacySession | None = request.admitted.session
        if (
            session is None
            or not session.is_open
            or type(message) is not UseToolRequest
            or self.closing
            or not session.call(response, message)
        ):
            self._post_one(request, response, message)

    def _post_one(self, request: HttpRequest, response: ResponseWriter, message: Message) -> None:
        if (refusal := _version_refusal(request, message)) is not None:
            response.plain(refusal)
        elif message.method == "initialize" and message.id:
            self._initialize(message, response, request.admitted)
        else:
            self._post_all(request, response, [message])

    def _post_batch(self, request: HttpRequest, response: ResponseWriter) -> None:
        try:
            messages = _read_batch(request.body)
        except Malformed as error:
            response.plain(refused(400, str(error), id=error.id, code=error.code))
            return
        if (refusal := _version_refusal(request, messages[0])) is not None:
            response.plain(refusal)
        else:
            self._post_all(request, response, messages, batch=True)

    def _post_all(
        self,
        request: HttpRequest,
        response: ResponseWriter,
        messages: list[Message],
        *,
        batch: bool = False,
    ) -> None:
        session = self._known(request)
        if session is None:
            response.plain(_no_session(request, bytes(messages[0].id)))
            return
        ids = [bytes(m.id) for m in messages if m.method and m.id]
        if ids and self.closing:
            response.plain(CLOSING)
        elif problem := _unusable(session, messages, ids, batch=batch):
            response.plain(refused(400, problem))
        else:
            session.post(response, messages, ids, batch=batch)

    def _initialize(self, message: Message, response: ResponseWriter, admitted: Admitted) -> None:
        if self.counted is not None and self.counted(message, response, admitted):
            return
        if self._full(admitted.principal):
            response.plain(TOO_MANY)
            return
        self.begin(message, response, admitted)

    def begin(self, message: Message, response: ResponseWriter, admitted: Admitted) -> None:
        principal = admitted.principal
        session = LegacySession(self.new_id(), principal.name, admitted.endpoint, self)
        session.host.public_origin = admitted.public_origin
        session.post(response, [message], [bytes(message.id)])
        if session.revision:
            self.add(session)
            if self.on_new is not None:
                self.on_new(session, message)
        else:
            session.close()
            self.active.discard(session)

    def add(self, session: LegacySession) -> None:
        self._sessions[session.id] = session
        self._counts[session.principal] += 1
        heappush(self._expiries, (session.expires, session.id))

    def get(self, id: str) -> LegacySession | None:
        return self._sessions.get(id)

    def all(self) -> list[LegacySession]:
        return list(self._sessions.values())

    @property
    def is_full(self) -> bool:
        return len(self._sessions) >= self._most()

    def count(self, principal: str) -> int:
        return self._counts.get(principal, 0)

    def of(self, principal: str) -> list[LegacySession]:
        return [s for s in self._sessions.values() if s.principal == principal]

    def _full(self, principal: Principal) -> bool:
        """Whether there are too many sessions, of all principals or of this one."""
        share = max(1, self._most() // principal.among)
        return self.is_full or self.count(principal.name) >= share

    def end(self, session: LegacySession) -> None:
        self.forget(session)
        session.close()
        self.active.discard(session)
        if self.on_end is not None:
            self.on_end(session)

    def forget(self, session: LegacySession) -> None:
        """Take no more requests for it; those in flight go on."""
        del self._sessions[session.id]
        self._counts[session.principal] -= 1
        if not self._counts[session.principal]:
            del self._counts[session.principal]
        self.listening.discard(session)
        if len(self._expiries) > 2 * len(self._sessions) + FEW_EXPIRIES:
            self._expiries = [entry for entry in self._expiries if entry[1] in self._sessions]
            heapify(self._expiries)

    def has_any(self, principal: str) -> bool:
        return principal in self._counts

    def knows(self, request: HttpRequest, endpoint: Endpoint) -> bool:
        """Whether the request names a session of this endpoint."""
        session = self._sessions.get(request.headers.get(SESSION_ID, b"").decode("latin-1"))
        return session is not None and session.endpoint is endpoint

    def _known(self, request: HttpRequest) -> LegacySession | None:
        """The session that the request names, if it belongs to its principal and endpoint."""
        session = self._sessions.get(request.headers.get(SESSION_ID, b"").decode("latin-1"))
        admitted: Admitted = request.admitted
        if (
            session is None
            or session.endpoint is not admitted.endpoint
            or session.principal != admitted.principal.name
        ):
            return None
        session.touched = self.now
        admitted.session = session
        return session

    def tick(self, now: float, *, comment: bool) -> None:
        self.now = now
        self.active = {s for s in self.active if s.tick(now, comment=comment)}
        if comment:
            for session in tuple(self.listening):
                session.comment()
        while self._expiries and self._expiries[0][0] < now:
            session = self._sessions.get(heappop(self._expiries)[1])
            if session is None:
                continue
            if session.expires < now:
                self.end(session)
            else:
                heappush(self._expiries, (session.expires, session.id))

    def stop(self) -> None:
        """Accept no new requests, and end the streams that wait for nothing."""
        self.closing = True
        for session in tuple(self.listening):
            session.stop_listening()

    def close(self) -> None:
        while self._sessions:
            self.end(next(iter(self._sessions.values())))


def _new_id() -> str:
    """An id that nobody can guess."""
    return urlsafe_b64encode(os.urandom(24)).decode()


def _no_session(request: HttpRequest, id: bytes = b"") -> Reply:
    if not request.headers.get(SESSION_ID):
        return refused(400, "Mcp-Session-Id is missing: send initialize first", id=id)
    return refused(404, "Session not found: send initialize again", id=id)


def _version_refusal(request: HttpRequest, first: Message) -> Reply | None:
    """The reply to a modern request whose header does not say so; None to any other."""
    if VERSION in request.headers or _MODERN_MARK not in request.body or not _is_modern(first):
        return None
    message = "MCP-Protocol-Version is missing"
    return refused(400, message, id=bytes(first.id), code=HEADER_MISMATCH)


def _is_modern(message: Message) -> bool:
    try:
        if isinstance(message, UseToolRequest):
            return parse.is_stamped(parse.read_meta(message.params.meta))
        return parse.is_stamped(parse.read_meta(parse.read_params(message).get("_meta")))
    except RequestError:
        return False


def _read_batch(body: bytes) -> list[Message]:
    members = jsonrpc.read_batch(json_text.one_line(body))
    if not members:
        raise Malformed(jsonrpc.INVALID_REQUEST, "a batch holds at least one message")
    return [parse.read(member) for member in members]


def _unusable(
    session: LegacySession, messages: list[Message], ids: list[bytes], *, batch: bool
) -> str:
    """Why these messages are refused; empty if they are not."""
    for id in ids:
        if not jsonrpc.usable_id(id):
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
