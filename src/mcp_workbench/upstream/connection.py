"""Connection: one server from start to end, owned by one task.

`run` starts the server, performs the handshake, lists the tools, then serves until the server exits or
`stop` is called. Every end becomes the state `Closed`. Others read the state, wait for it and send
requests; nothing but `run` enters or leaves the link. `PoolContext` is what all connections share.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.expand import Environment
from mcp_workbench.core.catalogue import Catalogue
from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.spec import (
    Era,
    Limits,
    LockFile,
    ServerAddress,
    ServerSpec,
    idle_filter,
)
from mcp_workbench.protocol import handshake
from mcp_workbench.protocol.elicitation import capability_names
from mcp_workbench.protocol.handshake import (
    Agreed,
    HandshakeRefused,
    Startover,
    is_modern,
)
from mcp_workbench.timing import pause
from mcp_workbench.transport.jsonrpc import Envelope
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.cache import CatalogueCache
from mcp_workbench.upstream.conversation import (
    TASK_NOTICES,
    Conversation,
    Failure,
    RequestFailed,
)
from mcp_workbench.upstream.dial import Link, Processes, Unreachable, dial, masked, startup_timeout
from mcp_workbench.upstream.health import (
    Backoff,
    Health,
    RetryState,
    is_full,
    overload_reason,
)
from mcp_workbench.upstream.negotiation import perform_handshake
from mcp_workbench.upstream.primitives import Primitives
from mcp_workbench.upstream.server_requests import ConnectionHost, ServerRequests
from mcp_workbench.upstream.tool_list import (
    TOOLS_CHANGED,
    ToolList,
    ToolRefresh,
    Unlistable,
    list_seconds,
)

if TYPE_CHECKING:
    from mcp_workbench.upstream.definition_locks import DefinitionLocks
    from mcp_workbench.upstream.dial import Placements
    from mcp_workbench.upstream.task_subscriptions import ConnectionTasks

log = logging.getLogger(__name__)

GATHER = 0.1  # seconds to wait for more announcements of the same change
REFRESH_PAUSE = pause(1.0)  # seconds between two listings, however often a server announces changes


class Connecting(msgspec.Struct, frozen=True):
    """The server is being started."""

    since: float


class Ready(msgspec.Struct, frozen=True):
    """Takes calls."""

    agreed: Agreed
    seconds: float  # from start to ready


class Closed(msgspec.Struct, frozen=True):
    """The connection has ended; `retry` says when a new one may be started."""

    reason: str
    retry: RetryState = RetryState()

    def describe(self, now: float) -> str:
        """The reason, with the time of the next attempt where that is not due."""
        return self.reason + self.retry.describe(now)


class Ended(Exception):
    """The connection ended; the text is the reason for the user."""


class Connection:
    """One server: its state, conversation, tools and primitives."""

    task_run = ""  # what ids of tasks call it; empty if it has created none for hosts
    needed_until = 0.0  # by the monotonic clock, for its tasks
    ended_at = 0.0  # likewise; 0: it has not ended
    tasks: ConnectionTasks | None = None  # what is heard of them, if anybody hears
    _is_first = False  # nobody has seen its tools yet
    _agreed: Agreed | None = None  # as received

    def __init__(  # noqa: PLR0913 - what a connection is made of
        self,
        spec: ServerSpec,
        context: PoolContext,
        host: ConnectionHost | None = None,
        primitives: Primitives | None = None,
        *,
        folder: str = "",
        pause: float = 0.0,
        after: Connection | None = None,
    ) -> None:
        self.spec = spec
        self._folder = folder  # of its host, where it runs there
        self._context = context
        self._pause = pause  # seconds before the start, because it failed before
        self._after = after  # a connection that is stopping, and must be gone first
        self._gone = asyncio.Event()
        self.state: Connecting | Ready | Closed = Connecting(time.monotonic())
        self.usable = False  # takes calls
        self.over = False  # closed or closing: a new connection is needed
        self.awaited = 0  # callers that wait for it to become ready
        self.retired = False  # being drained: takes no new calls
        self.ending = "it was closed"  # the reason where it is closed on purpose
        self.succeeds = False  # replaces another connection: changed lists are announced
        self.tools = ToolList(spec, context)
        self.visible = self.tools.visible
        self._tool_refresh = ToolRefresh(self.tools)
        self.modern = False
        self.conversation = self._new_conversation()
        self.health = Health()
        self.server_requests = ServerRequests(spec.address, host)
        self.primitives = primitives or Primitives.alone(spec.address)
        self.primitives.remember = self.tools.remember_primitives
        self._task: asyncio.Task[object] | None = None
        self._decided = asyncio.Event()  # no longer Connecting
        self._wake = asyncio.Event()  # wakes `run`
        self.stopped_idle = False  # by idleTimeout
        self._stopping = self._hung_up = self._starts_slowly = False
        self._ready_at = 0.0
        self._link: Link | None = None
        self._held = False

    # State

    @property
    def idle(self) -> bool:
        return self.usable and self.conversation.pending.count == 0

    @property
    def spare(self) -> bool:
        """Whether nobody would miss it."""
        return self.idle and not self.has_tasks

    @property
    def has_tasks(self) -> bool:
        """Whether its server keeps a task that a host has the handle of."""
        return self.needed_until > 0 and self.needed_until > time.monotonic()

    @property
    def reason(self) -> str:
        """Why it has ended, or is about to."""
        return self.state.reason if isinstance(self.state, Closed) else self.ending

    async def ready(self) -> None:
        """Wait until it takes calls or has failed; `state` says which."""
        self.awaited += 1
        try:
            await self._decided.wait()
        finally:
            self.awaited -= 1

    async def gone(self) -> None:
        """Wait until the server has exited and everything is closed."""
        await self._gone.wait()

    @property
    def catalogue(self) -> Catalogue:
        return self.tools.catalogue

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is wrong with some of its tools."""
        return self.tools.complaints + (() if self._link is None else self._link.complaints)

    def fresh(self, seconds: float) -> bool:
        """Is its tool list at most this old, with no sign of a change since?"""
        known = (
            not self.primitives.subscriptions.is_interrupted and not self._tool_refresh.is_under_way
        )
        return known and self.tools.fresh(seconds)

    async def refresh(self) -> None:
        """List its tools again, once for all who ask now. A failure keeps the current list."""
        await self._tool_refresh.wait(self._reread_tools, list_seconds(self.spec.timeout))

    async def _reread_tools(self) -> None:
        if await self.tools.reread(self.conversation, self.spec.timeout, modern=self.modern):
            self._context.changed(self)

    def relock(self) -> bool:
        """The lock file or its level has changed: show what it lets through. Are its tools others now?"""
        has_changed = self.tools.relock(self.spec)
        if isinstance(self.state, Ready) and self._agreed is not None:
            is_hidden = self.tools.blocked("instructions", "") is not None
            text = "" if is_hidden else self._agreed.instructions
            agreed = msgspec.structs.replace(self._agreed, instructions=text)
            self.state = Ready(agreed, self.state.seconds)
        self.primitives.expire()
        self._wake.set()
        return has_changed

    # Calls

    def full(self) -> str:
        """Why it takes no more requests now; empty where it does."""
        conversation, context = self.conversation, self._context
        return (
            overload_reason(conversation, context.limits) if is_full(conversation, context) else ""
        )

    def hold(self, *, held: bool) -> None:
        """Backpressure: stop reading from the server while a host can't keep up, or resume."""
        self._held = held
        if self._link is not None and isinstance(self.state, Ready):  # the start is always read
            self._link.hold(held=held)

    def expire(self, now: float) -> bool:
        """Fail the requests whose deadline has passed; are others still pending?"""
        pending = self.conversation.pending
        for number, handler in pending.overdue(now):
            failure = self.conversation.time_out(number, self.spec.timeout)
            self.health.timed_out(self.conversation)
            handler.lost(failure)
        return pending.count > 0

    # Lifetime

    async def run(self) -> None:
        """Run the connection until it ends. Never raises: other connections share its task scope."""
        self._task = asyncio.current_task()
        reason = ""
        try:
            await self._live()
        except asyncio.CancelledError:
            if not self._stopping:  # not our own `stop`: the application ends
                self._stopping = True
                raise
        except TimeoutError:
            reason = self._startup_timeout()
        except (Unreachable, Unlistable, RequestFailed, Ended) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - any failure becomes a state
            reason = f"{type(error).__name__}: {error}"
        finally:
            self._close(reason or self.ending)
            self._gone.set()

    def stop(self) -> None:
        """Ask it to end: at once while connecting, gracefully when ready."""
        self._stopping = self.over = True
        self.ended_at = self.ended_at or time.monotonic()
        self.usable = False  # no new calls while it shuts down
        self._wake.set()
        if self._task is not None and isinstance(self.state, Connecting):
            self._task.cancel()

    async def _live(self) -> None:
        era: Era = self.spec.era
        if era == "auto":
            era = self._context.eras.get(self.spec.target, "auto")
        async with asyncio.timeout(self.spec.connect_timeout) as limit:
            if self._pause:
                await asyncio.sleep(self._pause)
            if self._after is not None:
                await self._after.gone()
            while not self._stopping:
                conversation = self.conversation = self._new_conversation()
                ended = partial(self._ended, conversation)
                spec = self.spec.in_folder(self._folder)
                async with dial(spec, self._context, conversation, ended) as link:
                    self._link, conversation.channel = link, link.channel
                    try:
                        agreed = await self._enter(link, era)
                    except asyncio.CancelledError:
                        if limit.expired():
                            reason = await link.exit_reason(
                                self._startup_timeout(), ended=self._hung_up
                            )
                            self._close(reason)
                        raise
                    if isinstance(agreed, Agreed):
                        limit.reschedule(None)  # the limit is for the start only
                        await self._serve(link, agreed)
                        return
                era = self._start_over(agreed, era, limit)

    def _start_over(self, startover: Startover, era: Era, limit: asyncio.Timeout) -> Era:
        """Prepare the next start, and return its era."""
        self._hung_up = False
        if startover.agreed is None:
            return "legacy"
        self._starts_slowly = True  # but it works: the second start has a limit of its own
        limit.reschedule(asyncio.get_running_loop().time() + self.spec.connect_timeout)
        return era

    def _new_conversation(self) -> Conversation:
        return Conversation(self._context.limits.message_bytes, self._on_message, self.spec.address)

    async def _enter(self, link: Link, era: Era) -> Agreed | Startover:
        """Perform the handshake and list the tools."""
        try:
            outcome = await self._agree(link, era)
            if isinstance(outcome, Startover):
                if outcome.agreed is None or not self._starts_slowly:
                    return outcome
                outcome = outcome.agreed  # to restart it again would not help
            if isinstance(outcome, HandshakeRefused):
                self._context.eras.pop(self.spec.target, None)  # the server may have been updated
                raise Ended(outcome.reason)  # noqa: TRY301 - handled with the other failures below
            self.modern = is_modern(outcome.revision)
            link.agreed(outcome.revision)
            if self.spec.era == "auto" and self.modern == self.server_requests.is_legacy:
                # It does not speak the era of its host: the next start need not try that.
                self._context.eras[self.spec.target] = "modern" if self.modern else "legacy"
            self.primitives.subscriptions.listen_for_changes(self.conversation, outcome)
            self.tools.capabilities = capability_names(self.server_requests.declared)
            conversation, timeout = self.conversation, self.spec.connect_timeout
            before = self.catalogue if self.succeeds or self.tools.is_cached else None
            self.tools.begin()
            await self.tools.read(conversation, timeout, modern=self.modern)
            if before is None:  # hosts may have been shown the cached list since
                shown = self._context.cache.held(self.spec)
                self._is_first = shown is None
                before = self.catalogue if shown is None else shown.catalogue
            if before.differs(self.catalogue):
                self._context.changed(self)
        except (Ended, Unlistable, RequestFailed) as error:
            ended = Ended(await link.exit_reason(str(error), ended=self._hung_up))
            self._close(str(ended))  # before the shutdown of the server, which may take long
            raise ended from None
        return outcome

    async def _agree(self, link: Link, era: Era) -> Agreed | Startover | HandshakeRefused:
        """Perform the handshake, in the era of the host if it is alone and the server speaks that."""
        context, target, conversation = self._context, self.spec.target, self.conversation
        capabilities = self.server_requests.declare(conversation)
        legacy_host = self.server_requests.is_legacy
        initialize_first = legacy_host and (link.initialize_first or target in context.both_eras)
        first = handshake.first_step(era, initialize_first=initialize_first)
        patience = handshake.SLOW_PATIENCE if self._starts_slowly else handshake.PROBE_PATIENCE
        outcome = await perform_handshake(conversation, first, capabilities, patience)
        agreed_modern = isinstance(outcome, Agreed) and is_modern(outcome.revision)
        if agreed_modern and legacy_host and not initialize_first and era == "auto":
            with suppress(TimeoutError):
                async with asyncio.timeout(handshake.PROBE_PATIENCE):
                    return await self._open_session(link, capabilities) or outcome
        return outcome

    async def _open_session(self, link: Link, capabilities: Members) -> Agreed | None:
        """Agree on a legacy revision with a server that speaks modern, if it has sessions, too."""
        if not await link.opens_sessions():
            return None
        first = handshake.first_step("legacy")
        outcome = await perform_handshake(self.conversation, first, capabilities)
        if not isinstance(outcome, Agreed):
            return None
        self._context.both_eras.add(self.spec.target)
        return outcome

    async def _serve(self, link: Link, agreed: Agreed) -> None:
        since = self.state.since if isinstance(self.state, Connecting) else time.monotonic()
        self.primitives.admit = self.tools.admit
        shown, self._agreed = await self.tools.admit_agreed(agreed), agreed
        primitives, conversation = self.primitives, self.conversation
        async with (
            primitives.open(conversation, agreed, lambda: self.spec.timeout),
            self._tool_refresh.open(),
            task_scope() as tasks,
        ):
            self._ready_at = time.monotonic()
            self._settle(Ready(shown, self._ready_at - since))
            asking = self.server_requests.declared
            self.tools.remember(self.spec, agreed, self._ready_at - since, asking)
            if self._is_first:
                self._context.first_listed(self)
            self._context.record_ready(self.spec.in_folder(self._folder))
            link.hold(held=self._held)
            self._wake.set()  # there may be stale lists: those of its predecessor
            while not self._stopping:
                await self._wake.wait()
                self._wake.clear()
                if self._hung_up or self.conversation.failure:
                    raise await self._end(link)
                if (self.tools.stale or self.primitives.stale) and not tasks:
                    tasks.start(self._refresh_stale(), f"list {self.spec.address}")

    async def _refresh_stale(self) -> None:
        """Read the lists that the server announces as changed, until none is stale."""
        while self.tools.stale or self.primitives.stale:
            earliest = self.tools.listed_at + REFRESH_PAUSE
            await asyncio.sleep(max(GATHER, earliest - time.monotonic()))
            if self.tools.stale:
                await self.refresh()
            await self.primitives.refresh()

    async def _end(self, link: Link) -> Ended:
        """Close now, before the server's shutdown; the exception says why."""
        failure = self.conversation.failure
        reason = (
            failure.reason if failure else await link.exit_reason("the server exited", ended=True)
        )
        self._close(reason)
        return Ended(reason)

    def _startup_timeout(self) -> str:
        return startup_timeout(self.spec, self.conversation, self._context.environ)

    def _settle(self, state: Ready | Closed) -> None:
        self.state = state
        self.usable = isinstance(state, Ready) and not self.retired
        self.over = not self.usable
        self._decided.set()

    def _close(self, reason: str) -> None:
        reason = masked(reason, self.spec, self._context.environ)
        self.ended_at = self.ended_at or time.monotonic()
        if not isinstance(self.state, Closed):
            retry = RetryState()
            if not self._stopping:  # a stop is no failure
                lived = time.monotonic() - self._ready_at if self.usable else 0.0
                retry = self._context.record_failure(
                    self.spec.in_folder(self._folder), reason, lived, self.conversation
                )
            self._settle(Closed(reason, retry))
        self.server_requests.withdraw_all()
        self.conversation.end(() if self._link is None else self._link.unsent(), reason)
        if self.tasks is not None:
            self.tasks.ended()

    # Events

    def _ended(self, conversation: Conversation) -> None:
        if conversation is not self.conversation:  # a process that was replaced since
            return
        self._hung_up = True
        self._wake.set()
        if isinstance(self.state, Connecting):
            self.conversation.fail_all(Failure("server_exited", "exited during startup"))

    def _on_message(self, message: Envelope) -> None:
        if message.id and message.method:
            self.server_requests.received(self.conversation, message)
        elif message.method == "notifications/cancelled":
            self.server_requests.cancelled(message.params)
        elif not message.method or self._makes_stale(message):
            if self.usable and self.conversation.failure:
                self._close(self.conversation.failure.reason)  # the next call needs another one
            self._wake.set()

    def _makes_stale(self, message: Envelope) -> bool:
        """Take a notification; is there now a list to read again?"""
        if message.method == TOOLS_CHANGED:
            self.tools.stale = True
            return True
        if message.method.startswith(TASK_NOTICES):
            if self.tasks is not None:
                self.tasks.received(message)
            return False
        return self.primitives.received(message)


class PoolContext(msgspec.Struct):
    """Limits, environment, cache and backoff. Outlives every connection."""

    limits: Limits
    environ: Environment
    changed: Callable[[Connection], None]  # its tools changed
    crowded: Callable[[], bool]  # is limits.calls reached?
    cache: CatalogueCache
    first_listed: Callable[[Connection], None]  # its tools are known, and never were
    locks: DefinitionLocks | None = None  # the lock file, where there is one
    eras: dict[object, Era] = {}  # the only era that each target speaks, where that is known
    both_eras: set[object] = set()  # targets behind a URL that speak both
    asking: set[object] = set()  # targets that wanted to ask on a modern connection
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    processes: Processes = msgspec.field(default_factory=Processes)
    placements: Placements | None = None  # servers with one process for all replicas
    idle_filters: set[tuple[ServerAddress, str]] = set()  # those that were logged

    def relock(self, lock: LockFile | None) -> None:
        """Use this version of the lock file, or none."""
        if lock is None:
            self.locks = None
        elif self.locks is not None:
            self.locks.replace(lock)
        else:
            from mcp_workbench.upstream.definition_locks import DefinitionLocks  # only with a file

            self.locks = DefinitionLocks(lock, self.environ)
        self.cache.locks = self.locks

    # Changes of a server's state, one log line each

    def record_failure(
        self, spec: ServerSpec, reason: str, lived: float, conversation: Conversation
    ) -> RetryState:
        """Record that a server exited by itself, and return when it may be started again."""
        answered = conversation.answered if lived else 0
        if conversation.login_challenge and not lived:
            retry = self.backoff.wants_login(spec, reason)
        else:
            retry = self.backoff.ended(spec, lived, answered, reason, conversation.closed_until)
        line = retry.log_line(reason)
        if line and not _is_forced_shutdown():
            log.warning("%s: %s", spec.address, line)
        return retry

    def record_ready(self, spec: ServerSpec) -> None:
        """Record that a server takes calls."""
        if self.backoff.of(spec).is_open:
            log.warning("%s: it is back", spec.address)

    def record_idle_filters(self, address: ServerAddress, patterns: Iterable[str]) -> None:
        """Record that these patterns match none of a server's tools; one line for all connections."""
        for pattern in patterns:
            if (address, pattern) not in self.idle_filters:
                self.idle_filters.add((address, pattern))
                log.warning("%s: %s", address, idle_filter(pattern))

    def __repr__(self) -> str:
        return "PoolContext()"  # the environment holds secrets


def _is_forced_shutdown() -> bool:
    """Were all servers killed because the user interrupted twice?"""
    from mcp_workbench.transport.process import guard

    return guard().closed
