"""Measurement of calls, while somebody looks: the web page, `/metrics`, `top`.

Nobody looks: no route has these interceptors, and a call costs what it did before. With the first `look` the
routes are compiled again, with them; with the end of the last one, without. Calls in flight at that moment
are not measured.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.call_stats import CallStats, StatsSnapshot, TimelinePoint
from mcp_workbench.core.ended_calls import (
    BLOCK,
    MOST_KEPT,
    CallBatch,
    CallKind,
    CallNames,
    Details,
    EndedCall,
    EndedCalls,
    RecentCall,
)
from mcp_workbench.gateway.call_summary import LOCAL, LONGEST_NAME, summary_of
from mcp_workbench.gateway.interceptors import CallOutcome, Interceptor, Relayed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp_workbench.core.call_request import CallRequest
    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.gateway.workbench import Gateway

MOST_KINDS = 4096  # that are remembered: names that a host makes up are among them


_NOBODY = object()
_NO_NAMES = CallNames("", "", "", "", "", "", "", is_error=False)
_NO_KIND = CallKind(_NO_NAMES, is_configured=False, is_tool=False)


class AnswerClock(Interceptor):
    """Notes when the outcome was known, before anything else looks at it."""

    failures_only = True  # of results that are relayed as they are, the call itself notes it

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        call.answered = monotonic()
        return outcome


class CallMeter(Interceptor):
    """Notes each call after its answer was sent, which delays no answer, and counts calls a thousand at a time.

    A call by itself would find the code that counts it out of the processor's caches, which takes three times as
    long. What is not counted yet is counted before anybody is shown a figure.
    """

    observes_only = True

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._stats = CallStats()
        self._new: list[EndedCall] = []  # calls that are not counted yet
        self._details: dict[int, Details] = {}  # of these, by their place
        self._ended = EndedCalls()
        self._kinds: dict[CallNames, CallKind] = {}
        # The kind of the last call that was relayed, as most are: the next one is often the same.
        self._route: object = _NOBODY
        self._session: Any = None
        self._kind = _NO_KIND
        self._listeners: tuple[Callable[[], None], ...] = ()
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
        self._looks += 1
        self._watches += calls
        if self._looks == 1:
            self._stop = self._gateway.intercept(self, first=(AnswerClock(),))
        if calls and self._watches == 1:
            self._keep(MOST_KEPT)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._end(calls=calls)

        return end

    def _end(self, *, calls: bool) -> None:
        self._looks -= 1
        self._watches -= calls
        if calls and not self._watches:
            self._keep(0)
        if not self._looks:
            self._stop()

    def _keep(self, most: int) -> None:
        """Forget single calls, and keep so many of those that follow."""
        self._count()
        self._ended = EndedCalls(self._ended.last, keep=most)

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

    def on_news(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` with the first call that nobody was shown yet. Returns what ends that."""
        self._listeners += (listener,)

        def end() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

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

    def timeline(self, after: float = -1.0) -> Sequence[TimelinePoint]:
        """The calls of the last hour, in points: those after this moment."""
        self._count()
        return self._stats.timeline(after)

    def since(self, after: int = 0, most: int = MOST_KEPT) -> CallBatch:
        """The calls after this number; none if nobody looks at single calls."""
        self._count()
        return self._ended.since(after, most)

    def recent(self, after: int = 0, most: int = MOST_KEPT) -> Sequence[RecentCall]:
        """The same, newest first."""
        return tuple(self.since(after, most).calls())[::-1]

    def find(self, number: int) -> RecentCall | None:
        """The call with this number, if it is kept."""
        self._count()
        return self._ended.find(number)

    @property
    def calls(self) -> int:
        """How many calls were measured: the number of the last one."""
        return self._ended.last + len(self._new)

    # Measuring

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        end = monotonic()
        if (
            call.route is not self._route
            or call.session is not self._session
            or type(outcome) is not Relayed
            or call.has_details
        ):
            self._note(call, outcome, end)
            return outcome
        arguments = len(call.request.params.get("arguments", b""))
        new, received = self._new, len(outcome.result)
        new.append((self._kind, call.started, call.sent, call.answered, end, arguments, received))
        if len(new) >= BLOCK:
            self._count()
        return outcome

    def _note(self, call: Call, outcome: CallOutcome, end: float) -> None:
        """Note a call that has something to look at."""
        word, is_error, _, received = summary_of(call, outcome)
        kind = self._find_kind(call, word, is_error=is_error)
        if type(outcome) is Relayed and not call.parent:
            self._route, self._session, self._kind = call.route, call.session, kind
        waited = call.connecting > 0 or bool(
            call.passed
        )  # otherwise it went straight to its server
        ready = call.started + call.connecting
        queue, began, sent, answered = _moments(ready, call.sent, call.answered, end, waited=waited)
        if call.has_details:
            self._details[len(self._new)] = queue, call.connecting, call.is_resent, call.record
        size = _arguments_size(call.request)
        if not self._new:  # after each count, the first call comes here
            for listener in self._listeners:
                listener()
        self._new.append((kind, began, sent, answered, end, size, received))
        if len(self._new) >= BLOCK:
            self._count()

    def _count(self) -> None:
        new, self._new = self._new, []
        if new:
            details, self._details = self._details, {}
            self._stats.count(self._ended.add(new, details))
        self._route, self._session = _NOBODY, None  # they are not kept in memory by this

    def _find_kind(self, call: Call, word: str, *, is_error: bool) -> CallKind:
        """What is shown of where calls came from and went to."""
        route, request = call.route, call.request
        tool, is_tool = request.tool, request.method == TOOLS_CALL
        names = CallNames(
            _cut(call.host[0]),
            _cut(call.view.principal) or LOCAL,
            call.door,
            _cut(tool.toolbox),
            _cut(tool.server),
            _cut(tool.tool if is_tool else request.method),
            word,
            is_error,
            call.parent,
        )
        is_configured = route is not None or self._gateway.snapshot.find(tool.address) is not None
        is_tool = is_tool and route is not None
        kind = self._kinds.get(names)
        if kind is None or (kind.is_configured, kind.is_tool) != (is_configured, is_tool):
            if len(self._kinds) >= MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[names] = CallKind(
                names, is_configured=is_configured, is_tool=is_tool
            )
        return kind


def _moments(
    ready: float, sent: float, answered: float, end: float, *, waited: bool
) -> tuple[float, float, float, float]:
    """Seconds in the queue, and when it began to be ours, was sent, and was answered.

    `ready` is when nothing more had to start.
    """
    if not sent:
        return (end - ready, end, end, end) if waited else (0.0, ready, end, end)
    if answered < sent:
        answered = end
    return (sent - ready, sent, sent, answered) if waited else (0.0, ready, sent, answered)


def _arguments_size(request: CallRequest) -> int:
    if request.method == TOOLS_CALL:
        return len(request.params.get("arguments", b""))
    return len(request.body)


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _nothing() -> None:
    """Nobody looks."""
