"""Measurement of calls, while somebody looks: the web page, `/metrics`, `top`.

Nobody looks: no route has these interceptors, and a call costs what it did before. With the first `look` the
routes are compiled again, with them; with the end of the last one, without. Calls in flight at that moment
are not measured.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any

from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.call_stats import CallStats, RecentCall, StatsSnapshot
from mcp_workbench.gateway.call_summary import LOCAL, LONGEST_NAME, summary_of
from mcp_workbench.gateway.interceptors import CallOutcome, Interceptor, Relayed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mcp_workbench.core.call_request import CallRequest
    from mcp_workbench.core.spec import ToolIdentifier
    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.gateway.routes import Route
    from mcp_workbench.gateway.views import View
    from mcp_workbench.gateway.workbench import Gateway

BATCH = 256  # calls

# All of these at once, in one step of the interpreter. A host's session knows who sent the call.
_facts_of = attrgetter(
    "route", "view", "session", "started", "connecting", "sent", "answered", "passed", "is_resent",
    "parent", "record",
)  # fmt: skip
_Target = tuple["ToolIdentifier", str, tuple[str, str], str]  # tool, method, host, door
_Names = tuple[str, str, str, str, str, str, bool, bool]
_Ended = tuple[tuple[Any, ...], _Target | None, str, bool, int, int, float]


class AnswerClock(Interceptor):
    """Notes when the outcome was known, before anything else looks at it."""

    failures_only = True  # of results that are relayed as they are, the call itself notes it

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        call.answered = monotonic()
        return outcome


class CallMeter(Interceptor):
    """Counts and times each call, after its answer was sent: that delays no answer.

    Calls are counted in batches, and before anybody is shown a figure: a call by itself would find the code
    that counts it out of the processor's caches, which takes three times as long. Until then numbers are kept,
    and not the call: its memory is that of the next one.
    """

    observes_only = True

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._stats = CallStats()
        self._ended: list[_Ended] = []  # and not counted yet
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
            self._stop = self._gateway.intercept(self, first=(AnswerClock(),))
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
        end = monotonic()
        word, is_error, size = "ok", False, 0
        if type(outcome) is Relayed:
            size = len(outcome.result)
        else:
            word, is_error, _, size = summary_of(call, outcome)
        facts, request, ended = _facts_of(call), call.request, self._ended
        target = None
        if facts[0] is None or facts[2] is None:  # no route, or no session
            target = request.tool, request.method, call.host, call.door
        ended.append((facts, target, word, is_error, _arguments_size(request), size, end))
        if len(ended) >= BATCH:
            self._count()
        return outcome

    def _count(self) -> None:
        ended, self._ended = self._ended, []
        known: dict[tuple[Any, ...], _Names] = {}
        add, number = self._stats.add, self._stats.calls
        for facts, target, word, is_error, sent, received, end in ended:
            route, view, session, started, connecting, at, answered, passed, *rest = facts
            key = route, view, session, target
            names = known.get(key)
            if names is None:
                names = known[key] = self._names(*key)
            host, principal, door, toolbox, server, tool, is_configured, is_tool = names
            waited = connecting > 0 or bool(passed)  # otherwise it went straight to its server
            queue, at_server, own = _parts(started + connecting, at, answered, end, waited=waited)
            number += 1
            add(
                RecentCall(
                    number,
                    end,
                    host,
                    principal,
                    door,
                    toolbox,
                    server,
                    tool,
                    word,
                    is_error,
                    sent,
                    received,
                    queue,
                    connecting,
                    at_server,
                    own,
                    *rest,
                ),
                is_configured=is_configured,
                is_tool=is_tool,
            )

    def _names(
        self, route: Route | None, view: View, session: Any, target: _Target | None
    ) -> _Names:
        """What is shown of where calls came from and went to."""
        if target is None and route is not None:
            target = route.tool, route.method, session.host, session.door
        assert target is not None  # noqa: S101 - for the type
        tool, method, host, door = target
        is_tool = method == TOOLS_CALL
        return (
            _cut(host[0]),
            _cut(view.principal) or LOCAL,
            door,
            _cut(tool.toolbox),
            _cut(tool.server),
            _cut(tool.tool if is_tool else method),
            route is not None or self._gateway.snapshot.find(tool.address) is not None,
            route is not None and is_tool,
        )


def _parts(
    ready: float, sent: float, answered: float, end: float, *, waited: bool
) -> tuple[float, float, float]:
    """Seconds in the queue, at the server, and with us. `ready` is when nothing more had to start."""
    if not sent:
        return (end - ready, 0.0, 0.0) if waited else (0.0, 0.0, end - ready)
    if answered < sent:
        answered = end
    own = end - answered
    if waited:
        return sent - ready, answered - sent, own
    return 0.0, answered - sent, own + sent - ready


def _arguments_size(request: CallRequest) -> int:
    if request.method == TOOLS_CALL:
        return len(request.params.get("arguments", b""))
    return len(request.body)


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _nothing() -> None:
    """Nobody looks."""
