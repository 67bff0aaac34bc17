"""Figures of calls: counters, latency histograms and the most recent calls, all of bounded size.

`CallStats.add` is called for every call while somebody looks, so it does little: it finds the series of the
call and increments numbers. What is shown is computed by those who look (`snapshot`, `recent`).
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

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


class RecentCall(NamedTuple):
    """One call that has ended. Times are in seconds."""

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
        series = self._find(call, is_configured=is_configured)
        series.calls += 1
        series.sent += call.arguments_bytes
        series.received += call.result_bytes
        buckets, sums = series.buckets, series.sums
        total = 0.0
        for number, seconds in enumerate(call[12:16]):
            total += seconds
            sums[number] += seconds
            buckets[number][bisect_left(BOUNDS, seconds)] += 1
        sums[4] += total
        buckets[4][bisect_left(BOUNDS, total)] += 1
        if is_tool:
            self._add_tool(call, total)
        if call.ended >= self._slot_end:
            self._slot_end = call.ended // SLOT * SLOT + SLOT
            self._timeline.append([self._slot_end - SLOT, 0, 0, 0])
        point = self._timeline[-1]
        point[1] += 1
        point[2] += call.is_error
        point[3] += call.result_bytes
        if self._recent is not None:
            self._recent.append(call)

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

    def _add_tool(self, call: RecentCall, seconds: float) -> None:
        key = (call.toolbox, call.server, call.tool)
        figures = self._tools.get(key)
        if figures is None:
            if len(self._tools) >= MOST_TOOLS:
                key = (OTHER, OTHER, OTHER)
            figures = self._tools.setdefault(key, [0, 0, 0, 0.0])
        figures[0] += 1
        figures[1] += call.is_error
        figures[2] += call.result_bytes
        figures[3] += seconds

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
