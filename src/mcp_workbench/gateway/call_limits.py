"""Limits per principal (`limits` in `http`): calls per minute, calls in flight, requests and sessions.

`PrincipalQuotas` has what every principal uses; a reload changes the limits and keeps the counts. `CallLimit` is the
interceptor of its calls. Replicas of a cluster share the limits (`SharedCounts`): each gets calls in small parts, and
counts alone while the engine is away. A call counts from the moment it waits for its server until its outcome: it is added
once and removed once, whatever happens in between. docs/limits.md describes what is promised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import CallFailed
from mcp_workbench.core.principal_limits import (
    Excess,
    Granted,
    Usage,
    Wanted,
    accept,
    accept_session,
    begin_call,
    begin_request,
    begin_session,
    begin_shared,
    limits_of,
)
from mcp_workbench.gateway.interceptors import CallOutcome, Decision, Interceptor, Refusal, Wait

if TYPE_CHECKING:
    from mcp_workbench.core.spec import HttpSettings, PrincipalLimits
    from mcp_workbench.gateway.calls import Call

ALONE = 1.0  # seconds until the engine is asked again after an answer that was of no use
RETURN_AFTER = 0.05  # seconds for which a slot is kept for the next call, before others get it
FEW = 256  # principals that are kept without looking whether they are idle
SlotKind = Literal["calls", "sessions"]
ALWAYS = ("tasks/cancel",)  # requests that give something back are never refused


class SharedCounts(Protocol):
    """What counts for all replicas."""

    @property
    def is_ready(self) -> bool:
        """Whether it can be asked now."""
        ...

    async def take(
        self, principal: str, kind: SlotKind, limits: PrincipalLimits, wanted: Wanted
    ) -> Granted | None:
        """Count what is wanted, as far as it fits; slots are of this kind. None if it can't be asked."""
        ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run this in the background."""
        ...


class PrincipalQuotas:
    """What all principals of a gateway use."""

    def __init__(
        self, settings: Callable[[], HttpSettings], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._settings = settings
        self._known: tuple[HttpSettings, dict[str, PrincipalLimits | None]] | None = None
        self._usages: dict[str, Usage] = {}
        self._look = FEW  # with so many principals, idle ones are forgotten
        self.shared: SharedCounts | None = None  # None: this process counts alone
        self._alone_until = 0.0
        self.session_count: Callable[[str], int] = lambda _: 0  # how many a principal has here
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}  # by kind and principal
        self._returns: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._usages)

    def limits(self, principal: str) -> PrincipalLimits | None:
        """The limits of a principal, as configured now."""
        settings = self._settings()
        if self._known is None or self._known[0] is not settings:
            self._known = (settings, {})
        known = self._known[1]
        if principal not in known:
            if len(known) >= FEW:
                known.clear()
            known[principal] = limits_of(settings, principal)
        return known[principal]

    def usage(self, principal: str) -> Usage:
        """What a principal uses. It is asked for each time: that of an idle one is forgotten."""
        usage = self._usages.get(principal)
        if usage is None:
            if len(self._usages) >= self._look:
                self._forget_idle()
            usage = self._usages[principal] = Usage()
        return usage

    def _forget_idle(self) -> None:
        now = self.clock()
        idle = [name for name, usage in self._usages.items() if usage.is_idle(now)]
        for name in idle:
            del self._usages[name]
        self._look = max(FEW, 2 * len(self._usages))  # so that looking costs little for each

    def begin(self, call: Call, principal: str) -> Excess | Wanted | None:
        """Count a call, unless a limit is reached; `Wanted` if other replicas have to be asked first."""
        limits, usage, now = self.limits(principal), self.usage(principal), self.clock()
        if limits is None or self._is_alone(now):
            return begin_call(usage, call, limits, now)
        return begin_shared(usage, call, limits, now)

    def _is_alone(self, now: float) -> bool:
        """Whether this process counts alone, for now."""
        return self.shared is None or now < self._alone_until or not self.shared.is_ready

    async def begin_later(self, call: Call, principal: str) -> Excess | None:
        """Count a call when more was granted, unless a limit is reached."""
        usage = self.usage(principal)
        usage.waiting += 1
        try:
            while isinstance(decision := self.begin(call, principal), Wanted):
                await asyncio.wait((self._ask("calls", principal, decision),))
        finally:
            usage.waiting -= 1
        return decision

    def _ask(self, kind: SlotKind, principal: str, wanted: Wanted) -> asyncio.Task[None]:
        """Ask for this once for all who wait for it."""
        key, shared = (kind, principal), self.shared
        task = self._asking.get(key)
        if task is None:
            assert shared is not None  # noqa: S101 - it has been asked whether it is ready
            work = self._fetch(shared, kind, principal, wanted)
            task = self._asking[key] = shared.start(work)
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return task

    async def _fetch(
        self, shared: SharedCounts, kind: SlotKind, principal: str, wanted: Wanted
    ) -> None:
        limits = self.limits(principal)
        if limits is None:
            return
        granted = await shared.take(principal, kind, limits, wanted)
        usage, now = self.usage(principal), self.clock()
        if granted is None:
            self._alone_until = now + ALONE
        elif kind == "calls":
            accept(usage, wanted, granted, limits, now)
        else:
            accept_session(usage, wanted, granted, now)

    def session(self, principal: str) -> bool | Wanted:
        """Whether a principal may have one more session; `Wanted` if other replicas have to be asked."""
        most, own = self.sessions(principal), self.session_count(principal)
        if most is None or self._is_alone(self.clock()):
            return most is None or own < most
        return begin_session(self.usage(principal), own, self.clock())

    async def session_later(self, principal: str) -> bool:
        """Whether it may, when others were asked. Who gets a yes begins the session before it waits."""
        while isinstance(decision := self.session(principal), Wanted):
            await asyncio.wait((self._ask("sessions", principal, decision),))
        return decision

    def end(self, call: Call, principal: str) -> None:
        """The call has ended; it does not matter how often that is said."""
        usage = self._usages.get(principal)
        if usage is None:
            return
        usage.running.discard(call)
        if usage.slots > len(usage.running) and self._returns is None:
            loop = asyncio.get_running_loop()
            self._returns = loop.call_later(RETURN_AFTER, self._return_slots)

    def _return_slots(self) -> None:
        """Give back the slots that were not used again."""
        self._returns = None
        for principal, usage in self._usages.items():
            running = len(usage.running)
            if usage.slots <= running or ("calls", principal) in self._asking:
                continue
            usage.slots = running
            if self.shared is not None and self.shared.is_ready:
                self._ask("calls", principal, Wanted(0, running, running))

    def renew(self) -> None:
        """Say again which slots are in use: those of a replica that is silent go to others."""
        for principal, usage in self._usages.items():
            running, own = len(usage.running), self.session_count(principal)
            if (running or usage.slots) and ("calls", principal) not in self._asking:
                usage.slots = running  # one that is kept for the next call may be others' by now
                self._ask("calls", principal, Wanted(0, running, running))
            if (own or usage.session_slots) and ("sessions", principal) not in self._asking:
                usage.session_slots = own  # those of sessions that have ended go to others
                self._ask("sessions", principal, Wanted(0, own, own))

    def request(self, principal: str) -> float:
        """Count a request over HTTP. Returns 0, or the seconds after which it is accepted."""
        return begin_request(self.usage(principal), self.limits(principal), self.clock())

    def sessions(self, principal: str) -> int | None:
        """How many sessions a principal may have; None if that is not configured."""
        limits = self.limits(principal)
        return None if limits is None else limits.sessions


class CallLimit(Interceptor):
    """Refuses the calls of one principal that are too many."""

    observes_only = True

    def __init__(self, quotas: PrincipalQuotas, principal: str) -> None:
        self._quotas = quotas
        self._principal = principal

    def before(self, call: Call) -> Decision:
        if call.request.method in ALWAYS:
            return None
        decision = self._quotas.begin(call, self._principal)
        if isinstance(decision, Wanted):
            return Wait(partial(self._later, call))
        return None if decision is None else Refusal(too_many(call.request, decision))

    async def _later(self, call: Call) -> Refusal | None:
        excess = await self._quotas.begin_later(call, self._principal)
        return None if excess is None else Refusal(too_many(call.request, excess))

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        self._quotas.end(call, self._principal)
        return outcome


def too_many(request: CallRequest, excess: Excess) -> CallFailed:
    """The error of a call that is one too many. It names no principal: that may be any text."""
    error = CallFailed(
        "overloaded",
        request.tool,
        str(excess),
        may_have_run=False,
        retry_after=excess.retry_after,
    )
    error.hint = "Nothing was sent to the server. Try again later, or with fewer calls at once."
    return error


@asynccontextmanager
async def limited(call: Call, quotas: PrincipalQuotas, principal: str) -> AsyncGenerator[None]:
    """Count a call that waits for its server. Raises CallFailed if it is one too many.

    If it can't be sent, it has no route yet that would say when it ends, so it ends here.
    """
    excess = None if call.request.method in ALWAYS else quotas.begin(call, principal)
    if isinstance(excess, Wanted):
        excess = await quotas.begin_later(call, principal)
    if excess is not None:
        raise too_many(call.request, excess)
    sent = False
    try:
        yield
        sent = True
    finally:
        if not sent:
            quotas.end(call, principal)
