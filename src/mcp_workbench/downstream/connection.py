"""One live server, owned by one task: met, listed, called, and left."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.catalogue import Catalogue
from mcp_workbench.core.errors import CallFailed
from mcp_workbench.core.spec import Era, Limits, ServerSpec, ToolFilter
from mcp_workbench.downstream.conversation import Conversation, Loss, Lost, Waiter
from mcp_workbench.downstream.dial import Unreachable, dial
from mcp_workbench.downstream.hosts import Host
from mcp_workbench.downstream.last_words import masked
from mcp_workbench.downstream.link import Link
from mcp_workbench.downstream.listing import Unlistable, list_tools
from mcp_workbench.downstream.meeting import meet
from mcp_workbench.downstream.offers import Offers
from mcp_workbench.downstream.questions import OpenQuestions
from mcp_workbench.downstream.states import Closed, Connecting, Ready
from mcp_workbench.era.negotiate import Agreed, Refused, Startover
from mcp_workbench.era.ourselves import OURSELVES, STAMPS
from mcp_workbench.era.revision import is_modern
from mcp_workbench.era.translate import PAIRS, params_for
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope
from mcp_workbench.wire.tasks import task_scope

GATHER = 0.1  # seconds: servers announce one change several times
REFRESH_PAUSE = 1.0  # seconds between two listings, however often a server announces


class Connection:
    """A server's life. Everyone may wait for it and call it; only `run` enters and leaves it."""

    def __init__(  # noqa: PLR0913 - what a connection is made of
        self,
        spec: ServerSpec,
        limits: Limits,
        environ: Mapping[str, str],
        eras: dict[object, Era],
        changed: Callable[["Connection"], None],
        host: Host | None = None,
        offers: Offers | None = None,
    ) -> None:
        self.spec = spec
        self.state: Connecting | Ready | Closed = Connecting(time.monotonic())
        self.usable = False  # takes calls
        self.over = False  # or ending: a new connection is needed
        self.lessee: Host | None = None  # who has it for now, among those who take turns
        self.catalogue = Catalogue()
        self.complaints: tuple[str, ...] = ()
        self.modern = False
        self.conversation = Conversation(limits.message_bytes, self._noticed)
        self._limits = limits
        self._environ = environ
        self._eras = eras  # what was found out about each target, for as long as we live
        self._changed = changed
        self.questions = OpenQuestions(spec.address, host)
        self.offers = offers or Offers.alone(spec.address)
        self._task: asyncio.Task[object] | None = None
        self._decided = asyncio.Event()  # no longer Connecting
        self._wake = asyncio.Event()  # something for `run` to do
        self._stale = False
        self._stopping = False
        self._hung_up = False
        self._listed = 0.0  # when the catalogue was last read
        self._link: Link | None = None
        self._held = False
        self._filter: ToolFilter | None = None
        self._visible: dict[str, bytes] = {}

    # What anyone may ask

    @property
    def idle(self) -> bool:
        return self.usable and self.conversation.pending.count == 0

    def make_room(self) -> bool:
        """Have the call that waits longest give way, if nobody waits for it."""
        waiter = self.conversation.pending.oldest(lambda waiter: waiter.suspended)
        return waiter is not None and waiter.give_way()

    async def ready(self) -> None:
        """Wait until it takes calls or is over: read `state` to know which."""
        await self._decided.wait()

    def visible(self, shown: ToolFilter) -> dict[str, bytes]:
        """The names of the tools that this filter shows, each with its JSON form."""
        if self._filter is not shown:
            self._filter = shown
            self._visible = {
                name: envelope.encode(name) for name in self.catalogue.tools if shown.shows(name)
            }
        return self._visible

    def fresh(self, seconds: float) -> bool:
        doubtful = self._stale or self.offers.wishes.deaf
        return not doubtful and time.monotonic() - self._listed < seconds

    async def refresh(self) -> None:
        """Read the catalogue again now; failing to leaves the one we have."""
        self._stale = False  # what is announced from here on asks for another reading
        try:
            found, complaints = await list_tools(self.conversation, OURSELVES, modern=self.modern)
        except (Unlistable, Lost):
            self._listed = time.monotonic()  # not again at once
            return
        self._take(found, complaints)

    # Calls

    def begin(self, call: ToolCall, name: bytes, waiter: Waiter, deadline: float) -> int:
        """Send a call now; it is settled, or lost, later. Returns its number."""
        talk = self.conversation
        if talk.pending.count >= self._limits.calls_per_server:
            raise self._busy(
                call, f"{talk.pending.count} calls are in flight (limits.callsPerServer)"
            )
        if talk.channel.backlog > self._limits.queue_bytes:
            raise self._busy(call, f"{talk.channel.backlog} bytes wait (limits.queueBytes)")
        number = talk.pending.add(waiter, deadline)
        pair = PAIRS[call.modern_host, self.modern]
        params = params_for(pair, name, call, number, STAMPS)
        talk.channel.send(envelope.request(number, "tools/call", params))
        return number

    def _busy(self, call: ToolCall, why: str) -> CallFailed:
        return CallFailed("overloaded", call.tool, f"the server is busy: {why}", may_have_run=False)

    def hold(self, *, held: bool) -> None:
        """Stop listening to it while a host can't keep up, or go on."""
        self._held = held
        if self._link is not None and self.usable:  # one that is being met is heard out
            self._link.hold(held=held)

    def expire(self, now: float) -> bool:
        """End the calls whose time is up; is anyone still waiting?"""
        pending = self.conversation.pending
        for number, waiter in pending.overdue(now):
            self.conversation.tell_cancelled(number, "timeout")
            waiter.lost(Loss("timeout", f"timed out after {self.spec.timeout:g} s"))
        return pending.count > 0

    # Its life

    async def run(self) -> None:
        """Hold the connection until it ends. Never raises: its siblings must live on."""
        self._task = asyncio.current_task()
        reason = "it was closed"
        try:
            await self._live()
        except asyncio.CancelledError:
            if not self._stopping:  # not our own `stop`: the application ends
                raise
        except TimeoutError:
            reason = self._too_slow()
        except (Unreachable, Unlistable, Lost, _Ended) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - any failure becomes a state
            reason = f"{type(error).__name__}: {error}"
        finally:
            self._close(reason)

    def stop(self) -> None:
        """Ask it to end: at once while connecting, politely when ready."""
        self._stopping = self.over = True
        self._wake.set()
        if self._task is not None and isinstance(self.state, Connecting):
            self._task.cancel()

    async def _live(self) -> None:
        era: Era = self.spec.era
        if era == "auto":
            era = self._eras.get(self.spec.target, "auto")
        async with asyncio.timeout(self.spec.connect_timeout) as limit:
            while True:
                talk = self.conversation = Conversation(self._limits.message_bytes, self._noticed)
                ended = partial(self._ended, talk)
                async with dial(self.spec, self._environ, talk, ended) as link:
                    self._link, talk.channel = link, link.channel
                    try:
                        agreed = await self._enter(link, era)
                    except asyncio.CancelledError:
                        if limit.expired():
                            self._close(await self._said(link, self._too_slow()))
                        raise
                    if agreed is not None:
                        limit.reschedule(None)  # the limit was for the start only
                        await self._serve(link, agreed)
                        return
                self._hung_up = False
                era = "legacy"

    async def _enter(self, link: Link, era: Era) -> Agreed | None:
        """Meet the server and list its tools; None means that it has to be started anew."""
        try:
            found = await meet(self.conversation, era, self.questions.declare(self.conversation))
            if isinstance(found, Startover):
                return None
            if isinstance(found, Refused):
                self._eras.pop(self.spec.target, None)  # what was remembered may be out of date
                raise _Ended(found.reason)  # noqa: TRY301 - joined with the other ends below
            self.modern = is_modern(found.revision)
            link.agreed(found.revision)
            if not self.modern and self.spec.era == "auto":
                self._eras[self.spec.target] = "legacy"  # the next start needs no probe
            self.offers.wishes.hear_changes(self.conversation, found)
            catalogue, complaints = await list_tools(
                self.conversation, OURSELVES, modern=self.modern
            )
        except (_Ended, Unlistable, Lost) as error:
            ended = _Ended(await self._said(link, str(error)))
            self._close(str(ended))  # before the server is seen out, which may take its time
            raise ended from None
        self._take(catalogue, complaints)
        return found

    async def _serve(self, link: Link, agreed: Agreed) -> None:
        since = self.state.since if isinstance(self.state, Connecting) else time.monotonic()
        self.offers.opened(self.conversation, agreed)
        self._settle(Ready(agreed, time.monotonic() - since))
        link.hold(held=self._held)
        async with task_scope() as chores:
            while not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                if self._hung_up or self.conversation.failure:
                    raise await self._end(link)
                if (self._stale or self.offers.stale) and not chores:
                    chores.start(self._refresh_gently(), f"list {self.spec.address}")

    async def _end(self, link: Link) -> "_Ended":
        """Close now, before the server is seen out; the exception says why."""
        failure = self.conversation.failure
        ended = _Ended(failure.reason if failure else await self._said(link, "the server exited"))
        self._close(str(ended))
        return ended

    async def _refresh_gently(self) -> None:
        while self._stale or self.offers.stale:
            await asyncio.sleep(max(GATHER, self._listed + REFRESH_PAUSE - time.monotonic()))
            if self._stale:
                await self.refresh()
            await self.offers.refresh()

    async def _said(self, link: Link, what: str) -> str:
        return await link.last_words(what, ended=self._hung_up)

    def _too_slow(self) -> str:
        return f"it did not start within {self.spec.connect_timeout:g} s (connectTimeout)"

    def _take(self, catalogue: Catalogue, complaints: tuple[str, ...]) -> None:
        differs = catalogue != self.catalogue
        of_the_road = () if self._link is None else self._link.complaints
        self.catalogue, self.complaints = catalogue, (*complaints, *of_the_road)
        self._listed = time.monotonic()
        if differs:
            self._filter = None
            if self.usable:
                self._changed(self)

    def _settle(self, state: Ready | Closed) -> None:
        if not isinstance(self.state, Closed):
            self.state = state
        self.usable = isinstance(self.state, Ready)
        self.over = not self.usable
        self._decided.set()

    def _close(self, reason: str) -> None:
        reason = masked(reason, self.spec, self._environ)
        self._settle(Closed(reason))
        self.questions.withdraw_all()
        self.conversation.lose(Loss("server_exited", f"{reason}; the call may have run"))

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
        elif message.method == "notifications/tools/list_changed":
            self._stale = True
            self._wake.set()
        elif not message.method or self.offers.noticed(message):
            self._wake.set()


class _Ended(Exception):
    """The connection is over; the text is the reason that a user reads."""
