"""Calls and figures as the page shows them, of what was measured while somebody looked."""

from __future__ import annotations

import os
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable

import msgspec

from mcp_workbench.core.call_stats import (
    SLOTS,
    CallSeries,
    Histogram,
    StatsSnapshot,
    TimelinePoint,
    ToolFigures,
    merged,
)
from mcp_workbench.core.ended_calls import FIELDS, CallBatch, CallNames, is_zero, low_byte_first
from mcp_workbench.gateway.call_meter import CallMeter
from mcp_workbench.ui.page_sessions import now
from mcp_workbench.ui.page_tools import ServerTools

TOP = 25  # tools in a list
UNUSED = 200  # tools in the list of those that were never used
BATCH = 5000  # calls of one message
RUN = int.from_bytes(os.urandom(6))


class CallRows(msgspec.Struct, frozen=True):
    """Calls in the order in which they ended, as they were measured: nothing is made for a single one.

    Names may be anything: a call that is refused can name what does not exist.
    """

    run: int  # the process: another one counts calls from the beginning
    first: int  # the number of the first call
    total: int  # that of the last call that was measured
    offset: float  # from the clock of `ended` to the time of day
    names: tuple[CallNames, ...]
    kinds: bytes  # of each call the index of its names, in two bytes, the lower one first
    fields: tuple[str, ...]  # numbers of calls; those that are 0 for all of them are left out
    numbers: bytes  # of each field, those of all calls: doubles
    name_fields: tuple[str, ...] = CallNames.__struct_fields__


class Quantiles(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p95: float
    p99: float


class MeasuredServer(msgspec.Struct, frozen=True):
    """One server."""

    toolbox: str
    server: str
    calls: int
    errors: int
    tokens: int
    total: Quantiles


class ToolCount(msgspec.Struct, frozen=True):
    """One tool."""

    toolbox: str
    server: str
    tool: str
    calls: int = 0
    errors: int = 0
    tokens: int = 0
    mean: float = 0.0


class Minute(msgspec.Struct, frozen=True):
    """Ten seconds of the curve."""

    time: float
    calls: int
    errors: int


class Numbers(msgspec.Struct, frozen=True, rename="camel"):
    """The view of figures."""

    calls: int
    errors: int
    tokens: int
    total: Quantiles
    phases: dict[str, Quantiles]
    outcomes: dict[str, int]
    servers: list[MeasuredServer]
    top: list[ToolCount]
    unused: list[ToolCount]
    unused_count: int
    curve: list[Minute]


def call_rows(calls: CallBatch, total: int) -> CallRows:
    """Calls, for the page."""
    order = tuple(dict.fromkeys(calls.kinds))
    index = {kind: place for place, kind in enumerate(order)}
    places = array("H", map(index.__getitem__, calls.kinds))
    names = tuple(kind.names for kind in order)
    columns = {
        name: column
        for name, column in zip(FIELDS, calls.columns, strict=True)
        if name != "record" and not is_zero(column)  # that of the audit is of no use for the page
    }
    numbers = b"".join(low_byte_first(array("d", column)) for column in columns.values())
    return CallRows(
        RUN,
        calls.first,
        total,
        now() - time.monotonic(),
        names,
        low_byte_first(places),
        tuple(columns),
        numbers,
    )


def numbers(stats: StatsSnapshot, tools: Iterable[ServerTools]) -> Numbers:
    series = stats.series
    used = {(one.toolbox, one.server, one.tool) for one in stats.tools}
    unused = [
        ToolCount(line.toolbox, line.server, line.name, tokens=line.tokens)
        for server in tools
        for line in server.lines
        if line.is_shown and (line.toolbox, line.server, line.name) not in used
    ]
    unused.sort(key=lambda one: -one.tokens)
    outcomes: defaultdict[str, int] = defaultdict(int)
    for one in series:
        outcomes[one.outcome] += one.calls
    names = ("queue", "start", "server", "us")
    phases = {
        name: _quantiles(one.phases[index] for one in series) for index, name in enumerate(names)
    }
    return Numbers(
        stats.calls,
        sum(one.calls for one in series if one.is_error),
        sum(one.result_bytes for one in series) // 4,
        _quantiles(one.total for one in series),
        phases,
        dict(outcomes),
        _servers(series),
        [_count(one) for one in sorted(stats.tools, key=lambda one: -one.calls)[:TOP]],
        unused[:UNUSED],
        len(unused),
        curve(stats.timeline),
    )


def curve(points: Iterable[TimelinePoint]) -> list[Minute]:
    offset = now() - time.monotonic()
    return [Minute(round(p.at + offset), p.calls, p.errors) for p in points]


class Curve:
    """The curve of the first view, which is shown every second: what is over is not made again."""

    def __init__(self) -> None:
        self._over: deque[Minute] = deque(maxlen=SLOTS)
        self._last = -1.0  # where the last of these is

    def read(self, meter: CallMeter) -> list[Minute]:
        points = meter.timeline(self._last)
        shown = curve(points)
        if len(points) > 1:
            self._over += shown[:-1]
            self._last = points[-2].at
        return [*self._over, *shown[-1:]][-SLOTS:]


def _servers(series: Iterable[CallSeries]) -> list[MeasuredServer]:
    groups: defaultdict[tuple[str, str], list[CallSeries]] = defaultdict(list)
    for one in series:
        groups[one.toolbox, one.server].append(one)
    figures = [
        MeasuredServer(
            toolbox,
            server,
            sum(one.calls for one in some),
            sum(one.calls for one in some if one.is_error),
            sum(one.result_bytes for one in some) // 4,
            _quantiles(one.total for one in some),
        )
        for (toolbox, server), some in groups.items()
    ]
    return sorted(figures, key=lambda one: -one.calls)


def _count(tool: ToolFigures) -> ToolCount:
    mean = _ms(tool.seconds / tool.calls) if tool.calls else 0.0
    return ToolCount(
        tool.toolbox, tool.server, tool.tool, tool.calls, tool.errors, tool.result_tokens, mean
    )


def _quantiles(histograms: Iterable[Histogram]) -> Quantiles:
    whole = merged(histograms)
    return Quantiles(*(_ms(whole.quantile(share)) for share in (0.5, 0.95, 0.99)))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
