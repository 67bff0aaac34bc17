"""Limits per principal (`limits` in `http`): calls per minute, calls in flight, requests and sessions.

`PrincipalQuotas` has what every principal uses; a reload changes the limits and keeps the counts. `CallLimit` is the
interceptor of its calls. A call counts from the moment it waits for its server until its outcome: it is added
once and removed once, whatever happens in between. docs/limits.md describes what is promised.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import CallFailed
from mcp_workbench.core.principal_limits import (
    Excess,
    Usage,
    begin_call,
    begin_request,
    limits_of,
)
from mcp_workbench.gateway.interceptors import CallOutcome, Decision, Interceptor, Refusal

if TYPE_CHECKING:
    from mcp_workbench.core.spec import HttpSettings, PrincipalLimits
    from mcp_workbench.gateway.calls import Call

FEW = 256  # principals that are kept without looking whether they are idle
ALWAYS = ("tasks/cancel",)  # requests that give something back are never refused


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

    def begin(self, call: Call, principal: str) -> Excess | None:
        """Count a call, unless a limit is reached."""
        limits = self.limits(principal)
        return begin_call(self.usage(principal), call, limits, self.clock())

    def end(self, call: Call, principal: str) -> None:
        """The call has ended; it does not matter how often that is said."""
        usage = self._usages.get(principal)
        if usage is not None:
            usage.running.discard(call)

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
        excess = self._quotas.begin(call, self._principal)
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
    if excess is not None:
        raise too_many(call.request, excess)
    sent = False
    try:
        yield
        sent = True
    finally:
        if not sent:
            quotas.end(call, principal)
