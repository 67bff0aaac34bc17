"""Figures of calls: counters and latency histograms, all of bounded size.

Calls are counted many at a time, column by column: sorting the times of a thousand calls takes a fraction of what finding
the bucket of each does.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate, takewhile
from operator import add

import msgspec

from mcp_workbench.core.ended_calls import (
    AT_SERVER,
    BYTES_PER_TOKEN,
    ENDED,
    QUEUE,
    RECEIVED,
    SENT,
    START,
    WORKBENCH,
    CallBatch,
    CallKind,
    Columns,
    is_zero,
)

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
SLOT = 10.0  # seconds of one point of the timeline
SLOTS = 360  # points: one hour
OTHER = "(other)"  # not in the configuration, or one too many


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

    at: float  # by the clock of `ended`
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

    def count_times(self, columns: Columns) -> float:
        """Count the times of calls, with their parts; returns the sum."""
        queue, start = columns[QUEUE], columns[START]
        server, own = columns[AT_SERVER], columns[WORKBENCH]
        total: Iterable[float] = map(add, server, own)
        if is_zero(queue) and is_zero(start):  # most calls wait for nothing
            for buckets in self.buckets[:2]:
                buckets[0] += len(server)
        else:
            total = map(add, total, map(add, queue, start))
            self._count_phase(0, queue)
            self._count_phase(1, start)
        self._count_phase(2, server)
        self._count_phase(3, own)
        return self._count_phase(len(PHASES), total)

    def _count_phase(self, number: int, seconds: Iterable[float]) -> float:
        ordered, buckets = sorted(seconds), self.buckets[number]
        whole = sum(ordered)
        self.sums[number] += whole
        below, bucket = 0, 0
        while below < len(ordered) and bucket < len(BOUNDS):
            reached = bisect_right(ordered, BOUNDS[bucket], below)
            buckets[bucket] += reached - below
            below, bucket = reached, bucket + 1
        buckets[-1] += len(ordered) - below
        return whole

    def histogram(self, number: int) -> Histogram:
        return Histogram(tuple(self.buckets[number]), self.sums[number])


class _ToolNumbers:
    """The numbers of one tool, which count up."""

    __slots__ = ("calls", "errors", "received", "seconds")

    def __init__(self) -> None:
        self.calls = self.errors = self.received = 0
        self.seconds = 0.0


class _Point:
    """The calls of one point of the timeline."""

    __slots__ = ("at", "calls", "errors", "received")

    def __init__(self, at: float) -> None:
        self.at = at
        self.calls = self.errors = self.received = 0


class CallStats:
    """Counters since the start."""

    def __init__(self) -> None:
        self.calls = 0
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._tools: dict[tuple[str, str, str], _ToolNumbers] = {}
        self._known: dict[CallKind, tuple[_Series, _ToolNumbers | None]] = {}
        self._timeline: deque[_Point] = deque(maxlen=SLOTS)
        self._slot_end = 0.0

    def count(self, batch: CallBatch) -> None:
        """Count these calls, and no call twice."""
        self.calls += len(batch.kinds)
        ended, start = batch.columns[ENDED], 0
        while start < len(ended):
            if ended[start] >= self._slot_end:
                self._slot_end = ended[start] // SLOT * SLOT + SLOT
                self._timeline.append(_Point(self._slot_end - SLOT))
            end = bisect_left(ended, self._slot_end, start)
            for kind, columns in batch.part(start, end).by_kind():
                self._count_kind(kind, columns)
            start = end

    def _count_kind(self, kind: CallKind, columns: Columns) -> None:
        series, tool = self._counters(kind)
        calls, received = len(columns[RECEIVED]), int(sum(columns[RECEIVED]))
        errors = calls if kind.names.is_error else 0
        point = self._timeline[-1]
        series.calls += calls
        series.sent += int(sum(columns[SENT]))
        series.received += received
        seconds = series.count_times(columns)
        point.calls += calls
        point.errors += errors
        point.received += received
        if tool is not None:
            tool.calls += calls
            tool.errors += errors
            tool.received += received
            tool.seconds += seconds

    def _counters(self, kind: CallKind) -> tuple[_Series, _ToolNumbers | None]:
        """What counts up with calls of this kind: their series, and their tool if that exists."""
        counters = self._known.get(kind)
        if counters is None:
            if len(self._known) >= MOST_TOOLS:
                self._known.clear()
            tool = self._find_tool(kind) if kind.is_tool else None
            counters = self._known[kind] = self._find(kind), tool
        return counters

    def _find(self, kind: CallKind) -> _Series:
        names = kind.names
        if not kind.is_configured:
            key = (OTHER, OTHER, names.outcome)
        else:
            key = (names.toolbox, names.server, names.outcome)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= MOST_SERIES:
                key = (OTHER, OTHER, OTHER)
                series = self._series.get(key)
            if series is None:
                series = self._series[key] = _Series(is_error=names.is_error)
        return series

    def _find_tool(self, kind: CallKind) -> _ToolNumbers:
        names = kind.names
        key = (names.toolbox, names.server, names.tool)
        figures = self._tools.get(key)
        if figures is None:
            if len(self._tools) >= MOST_TOOLS:
                key = (OTHER, OTHER, OTHER)
            figures = self._tools.setdefault(key, _ToolNumbers())
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
            ToolFigures(*key, one.calls, one.errors, one.received, one.seconds)
            for key, one in self._tools.items()
        )
        return StatsSnapshot(self.calls, series, tools, self.timeline())

    def timeline(self, after: float = -1.0) -> tuple[TimelinePoint, ...]:
        """The points of the last hour, the oldest first: those after this moment."""
        points = reversed(self._timeline)
        newest = (TimelinePoint(p.at, p.calls, p.errors, p.received) for p in points)
        return tuple(takewhile(lambda point: point.at > after, newest))[::-1]
