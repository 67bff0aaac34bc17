"""Figures of calls: counters, latency histograms and the most recent calls, all of bounded size.

`CallStats.add` is called for every call while somebody looks, so it does little: it finds the series of the
call and increments numbers. What is shown is computed by those who look (`snapshot`, `recent`).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

import msgspec

PHASES = ("queue", "start", "server", "workbench")
# Upper bounds of the buckets in seconds; one more bucket has everything above.
BOUNDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
MOST_SERIES = 2048  # toolbox, server and outcome; further ones are counted as OTHER
MOST_TOOLS = 4096
RECENT = 10_000  # calls, about 5 MB
SLOT = 10.0  # seconds of one point of the timeline
SLOTS = 360  # points: one hour
OTHER = "(other)"  # not in the configuration, or one too many
BYTES_PER_TOKEN = 4  # of a result: an estimate that needs no look at the text


class RecentCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call that has ended. Times are in seconds. Encoded as a list: thousands of them are shown."""

    number: int  # counts up
    ended: float  # by the clock that was given to `add`
    host: str
    principal: str
    door: str
    toolbox: str
    server: str
    tool: str  # or the method
    outcome: str
    is_error: bool
    arguments_bytes: int
    result_bytes: int
    queue: float
    start: float  # waited for its server to start
    at_server: float
    workbench: float  # our own time
    is_resent: bool
    parent: str  # the script that made it
    record: int = 0  # the number of its line in the audit

    @property
    def seconds(self) -> float:
        return self.queue + self.start + self.at_server + self.workbench

    @property
    def result_tokens(self) -> int:
        """An estimate."""
        return self.result_bytes // BYTES_PER_TOKEN


class Histogram(msgspec.Struct, frozen=True):
    """How many of the times were in each bucket of BOUNDS, and above."""

    counts: tuple[int, ...]
    sum: float = 0.0  # seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> Iterator[int]:
        """How many times were at most each bound, and in all."""
        return accumulate(self.counts)

    def quantile(self, share: float) -> float:
        """Seconds that this share of the times did not exceed, interpolated within a bucket."""
        rank, below = share * self.count, 0
        for number, count in enumerate(self.counts):
            if count and below + count >= rank:
                low = BOUNDS[number - 1] if number else 0.0
                high = BOUNDS[number] if number < len(BOUNDS) else low
                return low + (high - low) * max(rank - below, 0.0) / count
            below += count
        return 0.0


NO_TIMES = Histogram((0,) * (len(BOUNDS) + 1))


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """The times of all of these."""
    parts = tuple(histograms)
    counts = (
        sum(column) for column in zip(NO_TIMES.counts, *(p.counts for p in parts), strict=True)
    )
    return Histogram(tuple(counts), sum(part.sum for part in parts))


class CallSeries(msgspec.Struct, frozen=True):
    """The calls of one server that ended alike."""

    toolbox: str
    server: str
    outcome: str
    is_error: bool
    calls: int
    arguments_bytes: int
    result_bytes: int
    total: Histogram
    phases: tuple[Histogram, ...]  # in the order of PHASES


class ToolFigures(msgspec.Struct, frozen=True):
    """The calls of one tool that exists, or did."""

    toolbox: str
    server: str
    tool: str
    calls: int
    errors: int
    result_bytes: int
    seconds: float  # of all its calls

    @property
    def result_tokens(self) -> int:
        """An estimate."""
        return self.result_bytes // BYTES_PER_TOKEN


class TimelinePoint(msgspec.Struct, frozen=True):
    """The calls that ended within SLOT seconds from `at`."""

    at: float  # by the clock that was given to `add`
    calls: int
    errors: int
    result_bytes: int


class StatsSnapshot(msgspec.Struct, frozen=True):
    """All figures at one moment."""

    calls: int  # since somebody looked for the first time
    series: tuple[CallSeries, ...]
    tools: tuple[ToolFigures, ...]
    timeline: tuple[TimelinePoint, ...]  # oldest first; points without calls are left out


class _Series:
    """The numbers of one series, which count up."""

    __slots__ = ("buckets", "calls", "is_error", "received", "sent", "sums")

    def __init__(self, *, is_error: bool) -> None:
        self.is_error = is_error
        self.calls = 0
        self.sent = 0  # bytes of arguments
        self.received = 0  # bytes of results
        self.buckets = [[0] * (len(BOUNDS) + 1) for _ in (*PHASES, "total")]
        self.sums = [0.0] * (len(PHASES) + 1)

    def add_times(self, queue: float, start: float, server: float, own: float) -> float:
        """Count the parts of a call's time; returns their sum."""
        buckets, sums = self.buckets, self.sums
        if queue or start:
            sums[0] += queue
            sums[1] += start
            buckets[0][bisect_left(BOUNDS, queue)] += 1
            buckets[1][bisect_left(BOUNDS, start)] += 1
        else:  # most calls wait for nothing
            buckets[0][0] += 1
            buckets[1][0] += 1
        total = queue + start + server + own
        sums[2] += server
        sums[3] += own
        sums[4] += total
        buckets[2][bisect_left(BOUNDS, server)] += 1
        buckets[3][bisect_left(BOUNDS, own)] += 1
        buckets[4][bisect_left(BOUNDS, total)] += 1
        return total

    def histogram(self, number: int) -> Histogram:
        return Histogram(tuple(self.buckets[number]), self.sums[number])


class CallStats:
    """Counters since the start, and the most recent calls if they are kept."""

    def __init__(self) -> None:
        self.calls = 0
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._tools: dict[tuple[str, str, str], list[float]] = {}
        self._timeline: deque[list[float]] = deque(maxlen=SLOTS)
        self._slot_end = 0.0
        self._point: list[float] = []  # the last of the timeline
        # By toolbox, server, tool and outcome: what counts up with such a call.
        self._known: dict[tuple[str, str, str, str], tuple[_Series, list[float]]] = {}
        self._recent: deque[RecentCall] | None = None

    def keep_recent(self, *, keep: bool, most: int = RECENT) -> None:
        """Keep the most recent calls from now on, or forget them."""
        if keep and self._recent is None:
            self._recent = deque(maxlen=most)
        elif not keep:
            self._recent = None

    def add(self, call: RecentCall, *, is_configured: bool, is_tool: bool) -> None:
        """Count a call that has ended.

        `is_configured`: its server is in the configuration. `is_tool`: the tool exists. All other names are
        whatever a host wrote.
        """
        self.calls += 1
        series, tool = self._counters(call, is_configured=is_configured, is_tool=is_tool)
        received = call.result_bytes
        series.calls += 1
        series.sent += call.arguments_bytes
        series.received += received
        total = series.add_times(call.queue, call.start, call.at_server, call.workbench)
        ended = call.ended
        if ended >= self._slot_end:
            self._slot_end = ended // SLOT * SLOT + SLOT
            self._point = [self._slot_end - SLOT, 0, 0, 0]
            self._timeline.append(self._point)
        point = self._point
        point[1] += 1
        point[3] += received
        if tool is not None:
            tool[0] += 1
            tool[2] += received
            tool[3] += total
        if call.is_error:
            point[2] += 1
            if tool is not None:
                tool[1] += 1
        if self._recent is not None:
            self._recent.append(call)

    def _counters(
        self, call: RecentCall, *, is_configured: bool, is_tool: bool
    ) -> tuple[_Series, list[float] | None]:
        """What counts up with this call: its series, and the numbers of its tool if that exists."""
        if not is_tool:
            return self._find(call, is_configured=is_configured), None
        key = (call.toolbox, call.server, call.tool, call.outcome)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_TOOLS:
                self._known.clear()
            series = self._find(call, is_configured=is_configured)
            known = self._known[key] = series, self._find_tool(call)
        return known

    def _find(self, call: RecentCall, *, is_configured: bool) -> _Series:
        if not is_configured:
            key = (OTHER, OTHER, call.outcome)
        else:
            key = (call.toolbox, call.server, call.outcome)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= MOST_SERIES:
                key = (OTHER, OTHER, OTHER)
                series = self._series.get(key)
            if series is None:
                series = self._series[key] = _Series(is_error=call.is_error)
        return series

    def _find_tool(self, call: RecentCall) -> list[float]:
        key = (call.toolbox, call.server, call.tool)
        figures = self._tools.get(key)
        if figures is None:
            if len(self._tools) >= MOST_TOOLS:
                key = (OTHER, OTHER, OTHER)
            figures = self._tools.setdefault(key, [0, 0, 0, 0.0])
        return figures

    # For those who look

    def snapshot(self) -> StatsSnapshot:
        """All figures of now."""
        last = len(PHASES)
        series = tuple(
            CallSeries(
                *key,
                numbers.is_error,
                numbers.calls,
                numbers.sent,
                numbers.received,
                numbers.histogram(last),
                tuple(map(numbers.histogram, range(last))),
            )
            for key, numbers in self._series.items()
        )
        tools = tuple(
            ToolFigures(*key, int(calls), int(errors), int(size), seconds)
            for key, (calls, errors, size, seconds) in self._tools.items()
        )
        timeline = tuple(
            TimelinePoint(at, int(calls), int(errors), int(size))
            for at, calls, errors, size in self._timeline
        )
        return StatsSnapshot(self.calls, series, tools, timeline)

    def find(self, number: int) -> RecentCall | None:
        """The call with this number, if it is kept."""
        known = self._recent or ()
        behind = self.calls - number
        return known[-1 - behind] if 0 <= behind < len(known) else None

    def recent(self, after: int = 0, most: int = RECENT) -> Sequence[RecentCall]:
        """The calls after this number, newest first, at most so many."""
        if self._recent is None:
            return ()
        wanted = min(most, self.calls - after)
        return tuple(islice(reversed(self._recent), max(wanted, 0)))
