"""How a server over HTTP is met: the modern question, the legacy greeting, and that one again.
The road to a server behind a URL: messages become requests, and what comes back becomes lines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec
from mcp_workbench.era.negotiate import DISCOVER, INITIALIZE
from mcp_workbench.era.revision import MODERN
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.http.errors import Failed, loss_of, without_time
from mcp_workbench.upstream.http.exchange import CANCELLED, CHANGED, Asked, Exchange
from mcp_workbench.upstream.http.headers import modern_headers
from mcp_workbench.upstream.http.legacy_sse import OldStream
from mcp_workbench.upstream.http.requests import Road
from mcp_workbench.upstream.http.streams import Pace, follow_stream
from mcp_workbench.upstream.responses import Loss
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope, Malformed
from mcp_workbench.wire.http_answer import Answer, Broken
from mcp_workbench.wire.tasks import TaskScope, task_scope

INITIALIZED = "notifications/initialized"
NOT_HERE = (400, 404, 405)  # what servers of the old transport answer to a greeting


class Greeter:
    """Opens what the protocol calls a session, as often as a server forgets it."""

    def __init__(self, road: Road, exchange: Exchange) -> None:
        self._road = road
        self._exchange = exchange
        self._greeting = msgspec.Raw(b"{}")  # what we said of ourselves
        self._renewing = asyncio.Lock()

    async def discover(self, asked: Asked) -> None:
        more = modern_headers(asked.method, asked.params, {})
        more += b"MCP-Protocol-Version: %b\r\n" % MODERN.encode()
        answer = await self._road.introduce(asked.frame, more)
        await self._hear(asked, answer)

    async def greet(self, asked: Asked) -> Answer | None:
        """Say hello; an answer that may mean another transport is handed back unread."""
        self._greeting = asked.params
        answer = await self._road.introduce(asked.frame)
        if answer.status in NOT_HERE:
            return answer
        await self._hear(asked, answer)
        return None

    async def renew(self, forgotten: str) -> bool:
        """Open a session again; several requests that find theirs gone share the new one."""
        async with self._renewing:
            if self._road.session != forgotten:
                return False
            frame = envelope.request(0, INITIALIZE, bytes(self._greeting))
            again = Asked(0, INITIALIZE, frame, self._greeting)  # our own numbers begin at 1
            again.quiet = True
            await self._hear(again, await self._road.introduce(frame))
            if again.refused:
                reason = "the server forgot the session and opens no other"
                raise Failed(Loss("session_lost", reason, may_have_run=False))
            self._exchange.forget()
            await self._road.tell(envelope.notification(INITIALIZED))
            return True

    async def _hear(self, asked: Asked, answer: Answer) -> None:
        try:
            await self._exchange.hear(asked, answer)
        finally:
            answer.close()


OPENINGS = (DISCOVER, INITIALIZE)
MEETING = (*OPENINGS, "tools/list")  # why it failed is told to whoever asks for the server later
LISTEN = "subscriptions/listen"
MOST_REPLIES = (
    64  # to questions of the server, on their way to it; a question that has more gets none
)
LASTING = ("needs_login", "rate_limited")  # says nothing about an era: no use to ask otherwise


class _Cancelled(msgspec.Struct):
    requestId: int = 0  # noqa: N815 - the wire's word


class HttpLink:
    """One server behind a URL. Takes frames and never waits; each request is a task of its own."""

    def __init__(
        self, road: Road, talk: Conversation, scope: TaskScope, ended: Callable[[], None]
    ) -> None:
        self._road = road
        self._talk = talk
        self._scope = scope
        self._ended = ended
        self._pace = Pace()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._exchange = Exchange(road, talk, self._flowing, self._pace)
        self._asked: dict[int, Asked] = {}
        self._old: OldStream | None = None
        self._verdict: Loss | None = None  # why it could not be met
        self._why = ""  # it ended
        self._why_not_old = ""
        self._greeter = Greeter(road, self._exchange)
        self._opened: asyncio.Task[None] | None = None  # requests wait for it
        self._listening: asyncio.Task[None] | None = None
        self._replies: set[asyncio.Task[None]] = set()

    # What a connection knows

    @property
    def channel(self) -> HttpLink:
        return self

    @property
    def backlog(self) -> int:
        return self._road.client.backlog

    @property
    def complaints(self) -> tuple[str, ...]:
        return tuple(self._exchange.complaints)

    def agreed(self, revision: str) -> None:
        self._verdict = None
        self._road.speak(revision, self._road.session)
        for asked in tuple(self._asked.values()):  # a greeting that was not waited for
            if asked.method in OPENINGS and asked.task is not None and not asked.answered:
                asked.task.cancel()

    def hold(self, *, held: bool) -> None:
        if held:
            self._flowing.clear()
        else:
            self._flowing.set()

    def unsent(self) -> tuple[bytes, ...]:
        return ()  # each request knows for itself whether it was sent

    async def last_words(self, what: str, *, ended: bool) -> str:
        why = self._why or (self._verdict.reason if self._verdict is not None else what)
        return redact(why, self._road.keeping.secrets)

    def send(self, frame: bytes, about: bytes = b"") -> None:
        try:
            message = envelope.decode(frame)
        except Malformed as error:  # just too deep, with what we put around it
            why = Loss.of_call("protocol_error", f"it can't be sent: {error}", may_have_run=False)
            asyncio.get_running_loop().call_soon(self._talk.fail, int(error.id or b"0"), why)
            return
        if not message.method or not message.id:
            self._tell(frame, message)
            return
        asked = Asked(int(message.id), message.method, frame, message.params)
        self._asked[asked.number] = asked
        asked.task = self._scope.start(self._ask(asked), f"{asked.method} {asked.number}")

    def _tell(self, frame: bytes, message: Envelope) -> None:
        if message.method == CANCELLED:
            self._take_back(frame, message)
            return
        if not message.method:
            self._reply(frame)
            return
        task = self._scope.start(self._tell_quietly(frame), message.method)
        if message.method == INITIALIZED:
            self._opened = task
            if self._old is None:
                self._listen()

    def _reply(self, frame: bytes) -> None:
        """Answer a question of the server, unless it asks on and on and takes no answer."""
        if len(self._replies) < MOST_REPLIES:
            task = self._scope.start(self._tell_quietly(frame), "answer")
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

    # Requests

    async def _ask(self, asked: Asked) -> None:
        try:
            if self._opened is not None and not self._opened.done():
                await asyncio.wait((self._opened,))
            if asked.method in OPENINGS:
                await self._open(asked)
            elif asked.method == LISTEN:
                await self._follow(asked)
            else:
                await self._perform(asked)
        except Failed as failure:
            self._lose(asked, failure.loss)
        except Broken as error:
            self._lose(asked, loss_of(error, self._road.keeping))
        except asyncio.CancelledError:
            asked.answered = True  # nobody waits for it
            raise
        finally:
            self._asked.pop(asked.number, None)
            if not asked.answered:
                self._lose(asked, Loss("internal", "the workbench failed to read the answer"))

    async def _perform(self, asked: Asked) -> None:
        """Send a request; again, once, where the server says that nothing has run."""
        if self._old is not None:
            await self._old.post(asked)
            return
        for attempt in (1, 2):
            session = self._road.session
            answer = await self._road.post(
                asked.frame,
                self._exchange.headers_for(asked),
                repeatable=asked.method != "tools/call",
            )
            try:
                forgotten = answer.status == 404 and bool(session)
                if not forgotten:
                    await self._exchange.hear(asked, answer)
            finally:
                answer.close()
            if asked.answered or asked.standing:
                return
            if not forgotten:
                await self._exchange.learn_headers()
                asked.again = True
            elif attempt == 1:
                await self._renew(session)
        reason = "the server forgets its sessions as soon as they are opened"
        raise Failed(Loss("session_lost", reason, may_have_run=False))

    async def _renew(self, session: str) -> None:
        """Open a session in the place of one that the server does not know any more."""
        if await self._greeter.renew(session):
            self._listen()
            self._talk.forgotten()
            self._talk.receive(CHANGED)  # it was probably started anew

    async def _follow(self, asked: Asked) -> None:
        """Listen for changes as long as we live, or until the server refuses for good."""

        async def once() -> bool:
            try:
                await self._perform(asked)
            finally:
                self._talk.interrupted(asked.number)
            return not asked.refused

        asked.standing = True
        async for _ in follow_stream(once, self._pace):
            asked.refused = False
        asked.answered = True

    def _lose(self, asked: Asked, loss: Loss) -> None:
        asked.answered = True
        if loss.retry_after is not None:
            self._talk.closed_until = time.monotonic() + loss.retry_after
            if asked.method in MEETING:
                loss = without_time(loss)
        if asked.method in OPENINGS:
            self._verdict = loss
            error = envelope.error_object(envelope.INTERNAL_ERROR, loss.reason)
            self._talk.receive(envelope.refusal(b"%d" % asked.number, error))
            return
        make = Loss.of_call if asked.method == "tools/call" else Loss
        reason = redact(loss.reason, self._road.keeping.secrets)
        ran, later = loss.may_have_run, loss.retry_after
        told = make(loss.code, reason, may_have_run=ran, retry_after=later)
        self._talk.fail(asked.number, told)

    def _take_back(self, frame: bytes, message: Envelope) -> None:
        number = msgspec.json.decode(message.params, type=_Cancelled).requestId
        asked = self._asked.get(number)
        if self._old is not None or (asked is not None and not self._road.modern):
            self._scope.start(self._tell_and_drop(frame, asked), "cancel")
        elif asked is not None and asked.task is not None:
            asked.task.cancel()

    async def _tell_and_drop(self, frame: bytes, asked: Asked | None) -> None:
        await self._tell_quietly(frame)
        if asked is not None and asked.task is not None:
            asked.task.cancel()

    async def _tell_quietly(self, frame: bytes) -> None:
        await self._road.tell(frame, None if self._old is None else self._old.there)

    # Meeting

    async def _open(self, asked: Asked) -> None:
        if self._verdict is not None and self._verdict.code in LASTING:
            raise Failed(self._verdict)
        if asked.method == DISCOVER:
            if self._road.sse_only:
                raise Failed(Loss("protocol_error", "the old HTTP+SSE transport is legacy"))
            await self._greeter.discover(asked)
        elif self._road.sse_only:
            if not await self._greet_old(asked):
                raise Failed(Loss("protocol_error", self._why_not_old))
        elif (refusal := await self._greeter.greet(asked)) is not None:
            try:
                if not await self._greet_old(asked):
                    await self._exchange.hear(asked, refusal)
            finally:
                refusal.close()

    async def _greet_old(self, asked: Asked) -> bool:
        """Try the old transport; if the server speaks it, it carries everything from here on."""
        old = OldStream(self._road, self._talk, self._flowing, self._broke_off)
        self._scope.start(old.run(), "events")
        if not await old.ready():
            self._why_not_old = old.why
            return False
        self._old = old
        await old.post(asked)
        return True

    def _broke_off(self, why: str) -> None:
        if self._old is not None:
            self._why = why
            self._ended()

    # What the server says unasked

    def _listen(self) -> None:
        if self._listening is None or self._listening.done():
            self._listening = self._scope.start(self._hear_unasked(), "events")

    async def _hear_unasked(self) -> None:
        if self._opened is not None:
            await asyncio.wait((self._opened,))
        async for _ in follow_stream(self._hear_once, self._pace):
            pass

    async def _hear_once(self) -> bool:
        session = self._road.session
        worth = await self._exchange.hear_unasked()
        if self._exchange.forgotten:
            await self._renew(session)
        return worth


@asynccontextmanager
async def http_link(
    target: HttpEndpoint,
    spec: ServerSpec,
    environ: Mapping[str, str],
    talk: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[HttpLink]:
    """A link to the server, for as long as the block lasts. Raises Broken where nobody is there."""
    road = Road(target, spec, environ, talk.message_bytes)
    try:
        await road.client.reach()
        try:
            async with task_scope() as scope:
                yield HttpLink(road, talk, scope, ended)
        finally:
            await road.leave()
    finally:
        road.client.close()
