"""HTTP link: the connection to a server behind a URL.

Takes the frames of a conversation, and runs each as an HTTP request:

    HttpLink.send -> _call_now            a call on a free connection, whose response is one JSON body: no task
    HttpLink.send -> _run -> _perform     everything else: one task per request, from the frame to its outcome
    Requester.post (requests)             headers, session, redirects; returns the head of the response
    Exchange.read (responses)             reads the response, and gives it to the conversation as lines

Opens sessions, again when the server loses them, and falls back to the HTTP+SSE transport of 2024-11-05
(event_streams).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec
from mcp_workbench.protocol.handshake import DISCOVER, INITIALIZE, MODERN
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.client_response import ClientResponse, ExchangeFailed
from mcp_workbench.transport.json_text import HUGE, too_deep
from mcp_workbench.transport.jsonrpc import NOTHING, Envelope, Malformed
from mcp_workbench.transport.tasks import TaskScope, task_scope
from mcp_workbench.upstream.conversation import Conversation, Failure, RequestFailed
from mcp_workbench.upstream.http.event_streams import LegacySse, Pace, follow_stream
from mcp_workbench.upstream.http.requests import (
    OutgoingRequest,
    Requester,
    modern_headers,
    without_time,
)
from mcp_workbench.upstream.http.responses import CANCELLED, CHANGED, Exchange, failure_of

INITIALIZED = "notifications/initialized"
_ID = len(b'{"jsonrpc":"2.0","id":')
_CALL = b',"method":"tools/call",'
OPENINGS = (DISCOVER, INITIALIZE)
STARTUP = (*OPENINGS, "tools/list")  # their failure is the reason why the server is unavailable
LISTEN = "subscriptions/listen"
MOST_REPLIES = 64  # to requests of the server, in flight; more are dropped
FINAL = ("needs_login", "rate_limited")  # the other era would fail the same way
# What servers with sessions answer to a GET without one: 400 says the protocol, 401 the Rust SDK.
SESSION_MISSING = (400, 401)
NOT_HERE = (400, 404, 405)  # what servers of the HTTP+SSE transport answer to `initialize`


class SessionOpener:
    """Sends the opening requests, and opens a new session when the server loses ours."""

    def __init__(self, requester: Requester, exchange: Exchange) -> None:
        self._requester = requester
        self._exchange = exchange
        self._initialize_params = msgspec.Raw(b"{}")
        self._renewing = asyncio.Lock()

    async def discover(self, request: OutgoingRequest) -> None:
        """Send `server/discover`."""
        more = modern_headers(request.method, request.params, {})
        more += b"MCP-Protocol-Version: %b\r\n" % MODERN.encode()
        response = await self._requester.post_opening(request.frame, more)
        await self._read(request, response)

    async def initialize(self, request: OutgoingRequest) -> ClientResponse | None:
        """Send `initialize`; a response that may mean the HTTP+SSE transport is returned unread."""
        self._initialize_params = request.params
        response = await self._requester.post_opening(request.frame)
        if response.status in NOT_HERE:
            return response
        await self._read(request, response)
        return None

    async def renew(self, lost_session: str) -> bool:
        """Open a new session. Requests that lose theirs at the same time share it."""
        async with self._renewing:
            if self._requester.session != lost_session:
                return False
            frame = jsonrpc.request(0, INITIALIZE, bytes(self._initialize_params))
            # Number 0: those of the conversation begin at 1.
            request = OutgoingRequest(0, INITIALIZE, frame, self._initialize_params)
            request.quiet = True
            await self._read(request, await self._requester.post_opening(frame))
            if request.refused:
                reason = "the server lost the session and opens no other"
                raise RequestFailed(Failure("session_lost", reason, may_have_run=False))
            self._exchange.reset()
            await self._requester.notify(jsonrpc.notification(INITIALIZED))
            return True

    async def _read(self, request: OutgoingRequest, response: ClientResponse) -> None:
        try:
            await self._exchange.read(request, response)
        finally:
            response.close()


class _Cancelled(msgspec.Struct, frozen=True):
    requestId: int = 0  # noqa: N815 - the protocol's name


class HttpLink:
    """One server behind a URL. `send` never waits."""

    initialize_first = False  # a modern server may count it as a malformed request

    def __init__(
        self,
        requester: Requester,
        conversation: Conversation,
        scope: TaskScope,
        ended: Callable[[], None],
    ) -> None:
        self._requester = requester
        self._conversation = conversation
        conversation.tokens = requester.error_context.secrets
        self._scope = scope
        self._ended = ended
        self._pace = Pace()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._exchange = Exchange(requester, conversation, self._flowing, self._pace)
        self._requests: dict[int, OutgoingRequest] = {}
        self._legacy: LegacySse | None = None
        self._opening_failure: Failure | None = None
        self._end_reason = ""
        self._no_legacy_reason = ""
        self._opener = SessionOpener(requester, self._exchange)
        self._opened: asyncio.Task[None] | None = None  # sends `initialized`: requests wait for it
        self._listening: asyncio.Task[None] | None = None
        self._replies: set[asyncio.Task[None]] = set()

    # Link and channel

    @property
    def channel(self) -> HttpLink:
        return self

    @property
    def backlog(self) -> int:
        return self._requester.client.backlog

    @property
    def complaints(self) -> tuple[str, ...]:
        return tuple(self._exchange.complaints)

    async def opens_sessions(self) -> bool:
        try:
            return await self._requester.get_status() in SESSION_MISSING
        except ExchangeFailed:
            return False

    def agreed(self, revision: str) -> None:
        self._opening_failure = None
        self._requester.speak(revision, self._requester.session)
        for request in tuple(self._requests.values()):  # an opening whose response came too late
            if request.method in OPENINGS and request.task is not None and not request.answered:
                request.task.cancel()

    def hold(self, *, held: bool) -> None:
        if held:
            self._flowing.clear()
        else:
            self._flowing.set()

    def unsent(self) -> tuple[bytes, ...]:
        return ()  # each request reports for itself whether it was sent

    async def exit_reason(self, what: str, *, ended: bool) -> str:
        failure = self._opening_failure
        reason = self._end_reason or (failure.reason if failure is not None else what)
        return redact(reason, self._requester.error_context.secrets)

    def send(self, frame: bytes, about: bytes = b"") -> None:
        if not self._call_now(frame):
            self._start(frame)

    def _call_now(self, frame: bytes) -> bool:
        """Send the most frequent request, a call, without a task; False, and nothing done, if it needs one."""
        end = frame.find(b",", _ID)
        if (
            self._legacy is not None
            or not frame.startswith(_CALL, end)
            or (self._opened is not None and not self._opened.done())
            or too_deep(frame)
        ):
            return False
        headers = self._exchange.call_headers(frame)
        response = None if headers is None else self._requester.post_now(frame, headers)
        if response is None:
            return False
        number = int(frame[_ID:end])
        request = self._requests[number] = OutgoingRequest(number, TOOLS_CALL, frame, NOTHING)
        request.response, request.sent_session = response, self._requester.session
        response.when_ready(partial(self._ready, request, response))
        return True

    def _ready(self, request: OutgoingRequest, response: ClientResponse) -> None:
        """The response is complete, or has to be read: then a task does that."""
        if request.number not in self._requests:
            return
        if self._exchange.read_now(request, response):
            del self._requests[request.number]
            response.close()
            return
        frame = request.frame
        request.params = jsonrpc.decode(frame, is_shallow=len(frame) > HUGE).params
        request.task = self._scope.start(self._run(request), f"{request.method} {request.number}")

    def _start(self, frame: bytes) -> None:
        """Send a message in a task."""
        try:
            message = jsonrpc.decode(frame, is_shallow=len(frame) > HUGE)  # its parts are shallow
        except Malformed as error:  # too deeply nested, together with our envelope
            reason = f"it can't be sent: {error}"
            failure = Failure.of_call("protocol_error", reason, may_have_run=False)
            number = int(error.id or b"0")
            asyncio.get_running_loop().call_soon(self._conversation.fail, number, failure)
            return
        if not message.method or not message.id:
            self._send_unanswered(frame, message)
            return
        request = OutgoingRequest(int(message.id), message.method, frame, message.params)
        self._requests[request.number] = request
        request.task = self._scope.start(self._run(request), f"{request.method} {request.number}")

    def _send_unanswered(self, frame: bytes, message: Envelope) -> None:
        if message.method == CANCELLED:
            self._cancel(frame, message)
            return
        if not message.method:
            self._reply(frame)
            return
        task = self._scope.start(self._post_quietly(frame), message.method)
        if message.method == INITIALIZED:
            self._opened = task
            if self._legacy is None:
                self._listen()

    def _reply(self, frame: bytes) -> None:
        """Send a response to a request of the server, unless too many are in flight."""
        if len(self._replies) < MOST_REPLIES:
            task = self._scope.start(self._post_quietly(frame), "answer")
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

    # Requests

    async def _run(self, request: OutgoingRequest) -> None:
        try:
            if self._opened is not None and not self._opened.done():
                await asyncio.wait((self._opened,))
            if request.method in OPENINGS:
                await self._open(request)
            elif request.method == LISTEN:
                await self._follow(request)
            else:
                await self._perform(request)
        except RequestFailed as failed:
            self._fail(request, failed.failure)
        except ExchangeFailed as error:
            self._fail(request, failure_of(error, self._requester.error_context))
        except asyncio.CancelledError:
            request.answered = True  # nobody waits for it
            raise
        finally:
            self._requests.pop(request.number, None)
            if not request.answered:
                self._fail(
                    request, Failure("internal", "the workbench failed to read the response")
                )

    async def _perform(self, request: OutgoingRequest) -> None:
        """Send a request; once more where the server says that nothing has run."""
        if self._legacy is not None:
            await self._legacy.post(request)
            return
        for attempt in (1, 2):
            sent, request.response = request.response, None
            session = self._requester.session if sent is None else request.sent_session
            response = await self._requester.post(
                request.frame,
                self._exchange.headers_for(request),
                repeatable=request.method != TOOLS_CALL,
                sent=sent,
            )
            try:
                session_lost = response.status == 404 and bool(session)
                if not session_lost:
                    await self._exchange.read(request, response)
            finally:
                response.close()
            if request.answered or request.is_listen:
                return
            if not session_lost:
                await self._exchange.learn_headers()
                request.again = True
            elif attempt == 1:
                await self._renew(session)
        reason = "the server loses its sessions as soon as they are opened"
        raise RequestFailed(Failure("session_lost", reason, may_have_run=False))

    async def _renew(self, session: str) -> None:
        """Replace a session that the server does not know any more."""
        if await self._opener.renew(session):
            self._listen()
            self._conversation.session_lost()
            self._conversation.receive(CHANGED)  # it has probably been restarted

    async def _follow(self, request: OutgoingRequest) -> None:
        """Keep a `subscriptions/listen` request open until the server refuses it permanently."""

        async def once() -> bool:
            try:
                await self._perform(request)
            finally:
                self._conversation.interrupted(request.number)
            return not request.refused

        request.is_listen = True
        async for _ in follow_stream(once, self._pace):
            request.refused = False
        request.answered = True

    def _fail(self, request: OutgoingRequest, failure: Failure) -> None:
        request.answered = True
        if failure.code == "needs_login":
            self._conversation.login_challenge = self._requester.challenge or "Bearer"
        if failure.retry_after is not None:
            self._conversation.closed_until = time.monotonic() + failure.retry_after
            if request.method in STARTUP:
                failure = without_time(failure)
        if request.method in OPENINGS:
            self._opening_failure = failure
            error = jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, failure.reason)
            self._conversation.receive(jsonrpc.refusal(b"%d" % request.number, error))
            return
        make = Failure.of_call if request.method == TOOLS_CALL else Failure
        reason = redact(failure.reason, self._requester.error_context.secrets)
        failure = make(
            failure.code,
            reason,
            may_have_run=failure.may_have_run,
            retry_after=failure.retry_after,
        )
        self._conversation.fail(request.number, failure)

    def _cancel(self, frame: bytes, message: Envelope) -> None:
        number = msgspec.json.decode(message.params, type=_Cancelled).requestId
        request = self._requests.get(number)
        if self._legacy is not None or (request is not None and not self._requester.modern):
            self._scope.start(self._post_and_drop(frame, request), "cancel")
        elif request is not None:
            self._drop(request)

    async def _post_and_drop(self, frame: bytes, request: OutgoingRequest | None) -> None:
        await self._post_quietly(frame)
        if request is not None:
            self._drop(request)

    def _drop(self, request: OutgoingRequest) -> None:
        self._requests.pop(request.number, None)  # a task that never ran does not
        request.stop()

    def close(self) -> None:
        """Nothing is sent or read any more."""
        for request in tuple(self._requests.values()):
            self._drop(request)

    async def _post_quietly(self, frame: bytes) -> None:
        await self._requester.notify(frame, None if self._legacy is None else self._legacy.endpoint)

    # Opening

    async def _open(self, request: OutgoingRequest) -> None:
        if self._opening_failure is not None and self._opening_failure.code in FINAL:
            raise RequestFailed(self._opening_failure)
        if request.method == DISCOVER:
            if self._requester.sse_only:
                raise RequestFailed(
                    Failure("protocol_error", "the old HTTP+SSE transport is legacy")
                )
            await self._opener.discover(request)
        elif self._requester.sse_only:
            if not await self._open_legacy(request):
                raise RequestFailed(Failure("protocol_error", self._no_legacy_reason))
        elif (refusal := await self._opener.initialize(request)) is not None:
            try:
                if not await self._open_legacy(request):
                    await self._exchange.read(request, refusal)
            finally:
                refusal.close()

    async def _open_legacy(self, request: OutgoingRequest) -> bool:
        """Try the HTTP+SSE transport; if the server supports it, it is used from here on."""
        legacy = LegacySse(self._requester, self._conversation, self._flowing, self._legacy_ended)
        self._scope.start(legacy.run(), "events")
        if not await legacy.ready():
            self._no_legacy_reason = legacy.reason
            return False
        self._legacy = legacy
        await legacy.post(request)
        return True

    def _legacy_ended(self, reason: str) -> None:
        if self._legacy is not None:
            self._end_reason = reason
            self._ended()

    # Messages outside of a response

    def _listen(self) -> None:
        if self._listening is None or self._listening.done():
            self._listening = self._scope.start(self._follow_events(), "events")

    async def _follow_events(self) -> None:
        if self._opened is not None:
            await asyncio.wait((self._opened,))
        async for _ in follow_stream(self._read_events_once, self._pace):
            pass

    async def _read_events_once(self) -> bool:
        session = self._requester.session
        reopen = await self._exchange.read_server_stream()
        if self._exchange.session_lost:
            await self._renew(session)
        return reopen


@asynccontextmanager
async def open_http_link(
    target: HttpEndpoint,
    spec: ServerSpec,
    environ: Mapping[str, str],
    conversation: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[HttpLink]:
    """Open a link for the duration of the block. Raises ExchangeFailed where the server can't be reached."""
    requester = Requester(target, spec, environ, conversation.message_bytes)
    try:
        await requester.client.reach()
        try:
            async with task_scope() as scope:
                requester.scope = scope
                link = HttpLink(requester, conversation, scope, ended)
                try:
                    yield link
                finally:
                    link.close()
        finally:
            await requester.leave()
    finally:
        requester.client.close()
