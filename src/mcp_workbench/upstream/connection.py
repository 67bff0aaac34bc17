"""Where a connection stands; each state carries what only it has.
One live server, owned by one task: met, listed, called, and left."""

import asyncio
import time
from functools import partial

import msgspec

from mcp_workbench.core.catalogue import Catalogue
from mcp_workbench.core.spec import Era, ServerSpec
from mcp_workbench.era.negotiate import Agreed, Refused, Startover
from mcp_workbench.era.revision import is_modern
from mcp_workbench.upstream.backoff import Trial
from mcp_workbench.upstream.context import Surroundings
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.dial import Link, Unreachable, dial
from mcp_workbench.upstream.exit_reason import masked, too_slow
from mcp_workbench.upstream.handshake import meet
from mcp_workbench.upstream.health import Wellbeing, is_full, why_full
from mcp_workbench.upstream.primitives import Offers
from mcp_workbench.upstream.refresh import Rereading, read_again, took_notice
from mcp_workbench.upstream.responses import Loss, Lost
from mcp_workbench.upstream.server_requests import Host, OpenQuestions
from mcp_workbench.upstream.tools import Unlistable, Wares, list_seconds
from mcp_workbench.wire.envelope import Envelope
from mcp_workbench.wire.tasks import task_scope


class Connecting(msgspec.Struct, frozen=True):
    """Being started and met."""

    since: float


class Ready(msgspec.Struct, frozen=True):
    """Takes calls."""

    agreed: Agreed
    seconds: float  # how long that took


class Closed(msgspec.Struct, frozen=True):
    """Over; a new connection has to be begun, and may be from a certain time on."""

    reason: str
    trial: Trial = Trial()

    def told(self, now: float) -> str:
        """The reason as a user reads it, with the time of the next try where that has to wait."""
        return self.reason + self.trial.told(now)


class Ended(Exception):
    """The connection is over; the text is the reason that a user reads."""


class Connection:
    """A server's life. Everyone may wait for it and call it; only `run` enters and leaves it."""

    def __init__(  # noqa: PLR0913 - what a connection is made of
        self,
        spec: ServerSpec,
        around: Surroundings,
        host: Host | None = None,
        offers: Offers | None = None,
        *,
        pause: float = 0.0,
        after: "Connection | None" = None,
    ) -> None:
        self.spec = spec
        self._around = around
        self._pause = pause  # seconds before it is started: it failed before
        self._after = after  # which is being stopped, and must be gone before
        self._gone = asyncio.Event()
        self.state: Connecting | Ready | Closed = Connecting(time.monotonic())
        self.usable = False  # takes calls
        self.over = False  # or ending: a new connection is needed
        self.awaited = 0  # how many wait for it to become ready
        self.retired = False  # over for those who have no call there yet
        self.ending = "it was closed"  # why, where nothing else is the reason
        self.succeeds = False  # another: what differs from that one's lists is announced
        self.wares = Wares(spec.address, around)
        self.visible = self.wares.visible
        self._rereading = Rereading(self.wares)
        self.modern = False
        self.conversation = self._new_conversation()
        self.wellbeing = Wellbeing()
        self.questions = OpenQuestions(spec.address, host)
        self.offers = offers or Offers.alone(spec.address)
        self.offers.remember = self.wares.remember_offers
        self._task: asyncio.Task[object] | None = None
        self._decided = asyncio.Event()  # no longer Connecting
        self._wake = asyncio.Event()  # something for `run` to do
        self.resting = False  # stopped because nobody used it
        self._stopping = self._hung_up = False
        self._ready_at = 0.0
        self._link: Link | None = None
        self._held = False

    # What anyone may ask

    @property
    def idle(self) -> bool:
        return self.usable and self.conversation.pending.count == 0

    async def ready(self) -> None:
        """Wait until it takes calls or is over: read `state` to know which."""
        self.awaited += 1
        try:
            await self._decided.wait()
        finally:
            self.awaited -= 1

    async def gone(self) -> None:
        """Wait until nothing of it is left."""
        await self._gone.wait()

    @property
    def catalogue(self) -> Catalogue:
        return self.wares.catalogue

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is wrong with tools of it."""
        return self.wares.complaints + (() if self._link is None else self._link.complaints)

    def fresh(self, seconds: float) -> bool:
        """Whether its list is not older than this, and nothing says that there is another."""
        known = not self.offers.wishes.deaf and not self._rereading.is_under_way
        return known and self.wares.fresh(seconds)

    async def refresh(self) -> None:
        """List its tools again, once for all who want it now; failing to leaves those that we have."""
        await self._rereading.done(self._read_again, list_seconds(self.spec.timeout))

    async def _read_again(self) -> None:
        if await self.wares.read_again(self.conversation, self.spec.timeout, modern=self.modern):
            self._around.changed(self)

    # Calls

    def full(self) -> str:
        """Why it can't take one more request; empty where it can."""
        talk, around = self.conversation, self._around
        return why_full(talk, around.limits) if is_full(talk, around) else ""

    def hold(self, *, held: bool) -> None:
        """Stop listening to it while a host can't keep up, or go on."""
        self._held = held
        if self._link is not None and isinstance(self.state, Ready):  # while met it is heard out
            self._link.hold(held=held)

    def expire(self, now: float) -> bool:
        """End the calls whose time is up; is anyone still waiting?"""
        pending = self.conversation.pending
        for number, waiter in pending.overdue(now):
            loss = self.conversation.time_out(number, self.spec.timeout)
            self.wellbeing.timed_out(self.conversation)
            waiter.lost(loss)
        return pending.count > 0

    # Its life

    async def run(self) -> None:
        """Hold the connection until it ends. Never raises: its siblings must live on."""
        self._task = asyncio.current_task()
        reason = ""
        try:
            await self._live()
        except asyncio.CancelledError:
            if not self._stopping:  # not our own `stop`: the application ends
                self._stopping = True
                raise
        except TimeoutError:
            reason = self._too_slow()
        except (Unreachable, Unlistable, Lost, Ended) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - any failure becomes a state
            reason = f"{type(error).__name__}: {error}"
        finally:
            self._close(reason or self.ending)
            self._gone.set()

    def stop(self) -> None:
        """Ask it to end: at once while connecting, politely when ready."""
        self._stopping = self.over = True
        self.usable = False  # nobody begins a call there while it is seen out
        self._wake.set()
        if self._task is not None and isinstance(self.state, Connecting):
            self._task.cancel()

    async def _live(self) -> None:
        era: Era = self.spec.era
        if era == "auto":
            era = self._around.eras.get(self.spec.target, "auto")
        async with asyncio.timeout(self.spec.connect_timeout) as limit:
            if self._pause:
                await asyncio.sleep(self._pause)
            if self._after is not None:
                await self._after.gone()
            while not self._stopping:
                talk = self.conversation = self._new_conversation()
                ended = partial(self._ended, talk)
                async with dial(self.spec, self._around, talk, ended) as link:
                    self._link, talk.channel = link, link.channel
                    try:
                        agreed = await self._enter(link, era)
                    except asyncio.CancelledError:
                        if limit.expired():
                            said = await link.last_words(self._too_slow(), ended=self._hung_up)
                            self._close(said)
                        raise
                    if agreed is not None:
                        limit.reschedule(None)  # the limit was for the start only
                        await self._serve(link, agreed)
                        return
                self._hung_up = False
                era = "legacy"

    def _new_conversation(self) -> Conversation:
        return Conversation(self._around.limits.message_bytes, self._noticed)

    async def _enter(self, link: Link, era: Era) -> Agreed | None:
        """Meet the server and list its tools; None means that it has to be started anew."""
        try:
            found = await meet(self.conversation, era, self.questions.declare(self.conversation))
            if isinstance(found, Startover):
                return None
            if isinstance(found, Refused):
                self._around.eras.pop(self.spec.target, None)  # it may be out of date
                raise Ended(found.reason)  # noqa: TRY301 - joined with the other ends below
            self.modern = is_modern(found.revision)
            link.agreed(found.revision)
            if not self.modern and self.spec.era == "auto":
                self._around.eras[self.spec.target] = "legacy"  # the next start needs no probe
            self.offers.wishes.hear_changes(self.conversation, found)
            shown = self.succeeds or self._around.memory.held(self.spec.address) is not None
            talk, timeout = self.conversation, self.spec.connect_timeout
            self.wares.begin()
            if await self.wares.read(talk, timeout, modern=self.modern) and shown:
                self._around.changed(self)
        except (Ended, Unlistable, Lost) as error:
            ended = Ended(await link.last_words(str(error), ended=self._hung_up))
            self._close(str(ended))  # before the server is seen out, which may take its time
            raise ended from None
        return found

    async def _serve(self, link: Link, agreed: Agreed) -> None:
        since = self.state.since if isinstance(self.state, Connecting) else time.monotonic()
        offers, talk = self.offers, self.conversation
        async with (
            offers.open(talk, agreed, lambda: self.spec.timeout),
            self._rereading.open(),
            task_scope() as chores,
        ):
            self._ready_at = time.monotonic()
            self._settle(Ready(agreed, self._ready_at - since))
            self.wares.remember(self.spec, agreed, self._ready_at - since)
            self._around.welcome(self.spec)
            link.hold(held=self._held)
            self._wake.set()  # there may be lists to read: those of the one that it succeeds
            while not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                if self._hung_up or self.conversation.failure:
                    raise await self._end(link)
                if (self.wares.stale or self.offers.stale) and not chores:
                    reading = read_again(self.wares, self.offers, self.refresh)
                    chores.start(reading, f"list {self.spec.address}")

    async def _end(self, link: Link) -> Ended:
        """Close now, before the server is seen out; the exception says why."""
        failure = self.conversation.failure
        said = failure.reason if failure else await link.last_words("the server exited", ended=True)
        self._close(said)
        return Ended(said)

    def _too_slow(self) -> str:
        return too_slow(self.spec, self.conversation, self._around.environ)

    def _settle(self, state: Ready | Closed) -> None:
        self.state = state
        self.usable = isinstance(state, Ready) and not self.retired
        self.over = not self.usable
        self._decided.set()

    def _close(self, reason: str) -> None:
        reason = masked(reason, self.spec, self._around.environ)
        if not isinstance(self.state, Closed):
            trial = Trial()
            if not self._stopping:  # nobody's wish is a failure
                lived = time.monotonic() - self._ready_at if self.usable else 0.0
                trial = self._around.judge(self.spec, reason, lived, self.conversation)
            self._settle(Closed(reason, trial))
        self.questions.withdraw_all()
        if self._link is not None:
            spared = Loss.of_call("server_exited", reason, may_have_run=False)
            self.conversation.lose_unsent(self._link.unsent(), spared)
        self.conversation.lose(Loss.of_call("server_exited", reason, may_have_run=True))

    # What the server says unasked

    def _ended(self, talk: Conversation) -> None:
        if talk is not self.conversation:  # of a process that was since started anew
            return
        self._hung_up = True
        self._wake.set()
        if isinstance(self.state, Connecting):
            self.conversation.lose(Loss("server_exited", "it ended before it answered"))

    def _noticed(self, message: Envelope) -> None:
        if message.id and message.method:
            self.questions.asked(self.conversation, message)
        elif message.method == "notifications/cancelled":
            self.questions.cancelled(message.params)
        elif not message.method or took_notice(self.wares, self.offers, message):
            if self.usable and self.conversation.failure:
                self._close(self.conversation.failure.reason)  # whoever calls next needs another
            self._wake.set()
