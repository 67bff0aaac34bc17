"""Measurement of calls, while somebody looks: the web page, `/metrics`, `top`.

Nobody looks: no route has these interceptors, and a call costs what it did before. With the first `look` the
routes are compiled again, with them; with the end of the last one, without. Calls in flight at that moment
are not measured.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.call_stats import CallStats, RecentCall, StatsSnapshot
from mcp_workbench.gateway.call_summary import LOCAL, LONGEST_NAME, arguments_of, summary_of
from mcp_workbench.gateway.interceptors import CallOutcome, Completed, Interceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.gateway.workbench import Gateway

BATCH = 64  # calls
LONGEST_KEPT = 64 << 10  # bytes of a result; calls with longer ones are counted at once


class AnswerClock(Interceptor):
    """Notes when the outcome was known, before anything else looks at it."""

    failures_only = True  # results that are relayed as they are have the other clock

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        call.answered = monotonic()
        return outcome


class RelayClock(Interceptor):
    """Notes when the answer was there of a call whose result is relayed as it is."""

    records = True

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        if not call.answered:
            call.answered = monotonic()
        return outcome


class CallMeter(Interceptor):
    """Counts and times each call, after its answer was sent: that delays no answer.

    Calls are counted in batches, and before anybody is shown a figure: a call by itself would find the code
    that counts it out of the processor's caches, which takes three times as long.
    """

    observes_only = True

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._stats = CallStats()
        self._ended: list[tuple[Call, CallOutcome, float]] = []  # and not counted yet
        self._looks = 0
        self._watches = 0  # looks that want single calls
        self._stop: Callable[[], None] = _nothing
        self._lease: Callable[[], None] | None = (
            None  # ends the look of those who come again and again
        )
        self._lease_timer: asyncio.TimerHandle | None = None

    # Who looks

    def look(self, *, calls: bool = False) -> Callable[[], None]:
        """Measure calls until the returned function is called; `calls` keeps the single ones, too."""
        self._count()
        self._looks += 1
        self._watches += calls
        if self._looks == 1:
            self._stop = self._gateway.intercept(RelayClock(), self, first=(AnswerClock(),))
        if calls:
            self._stats.keep_recent(keep=True)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._end(calls=calls)

        return end

    def _end(self, *, calls: bool) -> None:
        self._count()
        self._looks -= 1
        self._watches -= calls
        if not self._watches:
            self._stats.keep_recent(keep=False)
        if not self._looks:
            self._stop()

    def look_for(self, seconds: float) -> None:
        """Measure calls for so long, or longer if this is called again: for those who poll."""
        if self._lease is None:
            self._lease = self.look()
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._lease_timer = asyncio.get_running_loop().call_later(seconds, self._end_lease)

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease()
        self._lease = self._lease_timer = None

    def close(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()

    @property
    def is_on(self) -> bool:
        return self._looks > 0

    # What they see

    def snapshot(self) -> StatsSnapshot:
        """The figures of now, since the first look. Times are those of the monotonic clock."""
        self._count()
        return self._stats.snapshot()

    def recent(self, after: int = 0, most: int = 1000) -> Sequence[RecentCall]:
        """The calls after this number, newest first; none if nobody looks at single calls."""
        self._count()
        return self._stats.recent(after, most)

    def find(self, number: int) -> RecentCall | None:
        """The call with this number, if it is kept."""
        self._count()
        return self._stats.find(number)

    @property
    def calls(self) -> int:
        """How many calls were measured: the number of the last one."""
        self._count()
        return self._stats.calls

    # Measuring

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        self._ended.append((call, outcome, monotonic()))
        is_long = type(outcome) is Completed and len(outcome.result) > LONGEST_KEPT
        if is_long or len(self._ended) >= BATCH:
            self._count()
        return outcome

    def _count(self) -> None:
        ended, self._ended = self._ended, []
        for call, outcome, end in ended:
            self._add(call, outcome, end)

    def _add(self, call: Call, outcome: CallOutcome, end: float) -> None:
        request, connecting = call.request, call.connecting
        tool, sent = request.tool, call.sent
        word, is_error, _, size = summary_of(call, outcome)
        before = (sent or end) - call.started - connecting
        waited = connecting > 0 or bool(call.passed)  # otherwise it went straight to its server
        answered = call.answered if call.answered >= sent else end
        at_server = answered - sent if sent else 0.0
        own = end - answered if sent else 0.0
        host = call.host[0]
        is_tool = request.method == TOOLS_CALL
        routed = call.route is not None
        self._stats.add(
            RecentCall(
                self._stats.calls + 1,
                end,
                _cut(host),
                _cut(call.view.principal) or LOCAL,
                call.door,
                _cut(tool.toolbox),
                _cut(tool.server),
                _cut(tool.tool if is_tool else request.method),
                word,
                is_error,
                len(arguments_of(request)),
                size,
                before if waited else 0.0,
                connecting,
                at_server,
                own if waited else own + before,
                call.is_resent,
                call.parent,
                call.record,
            ),
            is_configured=routed or self._gateway.snapshot.find(tool.address) is not None,
            is_tool=routed and is_tool,
        )


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _nothing() -> None:
    """Nobody looks."""
