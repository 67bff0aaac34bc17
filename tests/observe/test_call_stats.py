"""Figures of calls are exact, bounded in size, and cost nothing to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.call_stats import (
    BOUNDS,
    MOST_SERIES,
    MOST_TOOLS,
    OTHER,
    PHASES,
    SLOT,
    SLOTS,
    CallSeries,
    CallStats,
    Histogram,
    merged,
)
from mcp_workbench.core.ended_calls import (
    BLOCK,
    CallBatch,
    CallKind,
    CallNames,
    Details,
    EndedCall,
    EndedCalls,
)

times = st.floats(0, 100)
Measured = tuple[CallKind, float, float, float, int, int]  # its numbers up to the details


def kind(*, is_configured: bool = True, is_tool: bool = True, **more: object) -> CallKind:
    names = CallNames("host", "local", "stdio", "box", "a", "echo", "ok", is_error=False)
    names = msgspec.structs.replace(names, **more)
    return CallKind(names, is_configured=is_configured, is_tool=is_tool)


ECHO = kind()


def call(
    kind: CallKind = ECHO, ended: float = 1.0, server: float = 0.002, own: float = 0.0001
) -> Measured:
    return kind, ended, server, own, 10, 400


def noted(ended: float = 1.0) -> EndedCall:
    """A call of 2 ms at its server and 0.1 ms of ours, as the meter notes it."""
    return ECHO, ended - 0.0021, ended - 0.002, ended, ended, 10, 400


def batch(calls: Sequence[Measured], details: Mapping[int, Details]) -> CallBatch:
    """These calls; details are by their place."""
    kinds, *columns = zip(*calls, strict=True)
    rows = [details.get(place, (0.0, 0.0, False, 0)) for place in range(len(calls))]
    return CallBatch(1, kinds, (*columns, *zip(*rows, strict=True)))


def counted(*calls: Measured, details: Mapping[int, Details] | None = None) -> CallStats:
    """Figures of these calls, in the order of their ends."""
    stats = CallStats()
    if calls:
        stats.count(batch(calls, details or {}))
    return stats


@given(st.lists(st.tuples(times, times, times, times), min_size=1, max_size=30))
def test_every_call_is_in_one_bucket_of_each_histogram(
    splits: list[tuple[float, float, float, float]],
) -> None:
    details = {place: (queue, start, False, 0) for place, (queue, start, _, _) in enumerate(splits)}
    stats = counted(*(call(server=server, own=own) for *_, server, own in splits), details=details)

    (series,) = stats.snapshot().series
    assert series.calls == len(splits) == series.total.count
    assert [phase.count for phase in series.phases] == [len(splits)] * len(PHASES)
    for number, phase in enumerate(series.phases):
        assert phase.sum == pytest.approx(sum(split[number] for split in splits))
        for bound, count in zip(BOUNDS, phase.cumulative(), strict=False):
            assert count == sum(split[number] <= bound for split in splits)
    assert series.total.sum == pytest.approx(sum(phase.sum for phase in series.phases))


@given(st.lists(times, min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_the_time_that_it_estimates(
    seconds: list[float], share: float
) -> None:
    stats = counted(*(call(server=value, own=0.0) for value in seconds))

    estimate = stats.snapshot().series[0].total.quantile(share)

    rank = max(0, -int(-share * len(seconds) // 1) - 1)
    exact = sorted(seconds)[min(rank, len(seconds) - 1)]
    low = max([0.0, *(bound for bound in BOUNDS if bound < exact)])
    high = min([bound for bound in BOUNDS if bound >= exact], default=BOUNDS[-1])
    assert low <= estimate <= high


def test_histograms_are_added_up() -> None:
    stats = counted(call(server=0.002), call(kind(server="b"), server=7.0))
    one, two = (series.phases[2] for series in stats.snapshot().series)

    both = merged([one, two])

    assert both.count == 2
    assert both.sum == 7.002
    assert merged([]).count == 0
    assert Histogram((0,) * len(both.counts)).quantile(0.5) == 0.0


def test_bytes_and_errors_are_counted_where_they_belong() -> None:
    failed = kind(outcome="timeout", is_error=True)
    prompt = kind(tool="hello", is_tool=False)

    seen = counted(call(), call(failed, 2.0), call(prompt, SLOT), call(ended=SLOT + 1)).snapshot()

    assert [
        (one.outcome, one.is_error, one.calls, one.arguments_bytes, one.result_bytes)
        for one in seen.series
    ] == [("ok", False, 3, 30, 1200), ("timeout", True, 1, 10, 400)]
    (echo,) = seen.tools
    assert (echo.tool, echo.calls, echo.errors, echo.result_bytes) == ("echo", 3, 1, 1200)
    assert echo.seconds == pytest.approx(3 * 0.0021)
    assert [
        (point.at, point.calls, point.errors, point.result_bytes) for point in seen.timeline
    ] == [
        (0.0, 2, 1, 800),
        (SLOT, 2, 0, 800),
    ]


def test_what_hosts_write_makes_no_new_series() -> None:
    unknown = partial(kind, is_configured=False, is_tool=False, outcome="not_found")
    kinds = (unknown(toolbox=f"x{number}", tool=f"t{number}") for number in range(50))

    seen = counted(*map(call, kinds)).snapshot()

    assert [(s.toolbox, s.server, s.outcome, s.calls) for s in seen.series] == [
        (OTHER, OTHER, "not_found", 50)
    ]
    assert seen.tools == ()


def test_series_and_tools_are_bounded_and_no_call_is_lost() -> None:
    kinds = (kind(server=f"s{number}", tool=f"t{number}") for number in range(MOST_TOOLS + 100))

    seen = counted(*map(call, kinds)).snapshot()

    assert len(seen.series) == MOST_SERIES + 1
    assert len(seen.tools) == MOST_TOOLS + 1
    assert sum(s.calls for s in seen.series) == seen.calls == MOST_TOOLS + 100
    assert seen.tools[-1].tool == OTHER
    assert seen.tools[-1].calls == 100


def test_the_timeline_has_an_hour() -> None:
    kinds = kind(is_error=True), ECHO
    ends = (number * SLOT + 1 for number in range(SLOTS * 2))
    stats = counted(*(call(kinds[n % 2], ended) for n, ended in enumerate(ends)))

    timeline = stats.snapshot().timeline
    assert len(timeline) == SLOTS
    assert timeline[-1].at == (SLOTS * 2 - 1) * SLOT
    assert [point.errors for point in timeline[:4]] == [1, 0, 1, 0]
    assert {point.calls for point in timeline} == {1}
    assert stats.timeline(after=timeline[-3].at) == timeline[-2:]


@given(st.lists(st.tuples(st.integers(0, 5), times, st.booleans()), min_size=1, max_size=60))
def test_it_does_not_matter_how_many_calls_are_counted_at_once(
    calls: list[tuple[int, float, bool]],
) -> None:
    kinds = [kind(tool=f"t{n}", outcome=f"o{n % 2}", is_error=n > 3) for n in range(6)]
    ended = [
        call(kinds[which], ended=place * 3.0, server=seconds)
        for place, (which, seconds, _) in enumerate(calls)
    ]
    details = {place: (1.0, 0.5, True, 7) for place, (*_, waited) in enumerate(calls) if waited}
    one_by_one = CallStats()
    for place, one in enumerate(ended):
        some = {0: details[place]} if place in details else {}
        one_by_one.count(batch([one], some))

    together = counted(*ended, details=details).snapshot()
    alone = one_by_one.snapshot()
    assert together.calls == alone.calls == len(calls)
    assert together.timeline == alone.timeline
    for at_once, in_turn in zip(
        sorted(together.series, key=_names), sorted(alone.series, key=_names), strict=True
    ):
        assert at_once.total.counts == in_turn.total.counts
        assert [p.counts for p in at_once.phases] == [p.counts for p in in_turn.phases]
        assert at_once.total.sum == pytest.approx(in_turn.total.sum)
        assert (at_once.calls, at_once.result_bytes) == (in_turn.calls, in_turn.result_bytes)
    assert {t.tool: (t.calls, t.errors) for t in together.tools} == {
        t.tool: (t.calls, t.errors) for t in alone.tools
    }


def _names(series: CallSeries) -> tuple[str, str, str]:
    return series.toolbox, series.server, series.outcome


def numbers_of(ended: EndedCalls, after: int = 0, most: int = 99) -> list[int]:
    return [one.number for one in ended.since(after, most).calls()]


def test_recent_calls_are_the_newest_and_are_read_on_from_a_number() -> None:
    kept = EndedCalls(1, keep=3)
    kept.add([noted()], {})
    kept.add([noted()] * 4, {3: (0.5, 0.25, True, 42)})

    assert (numbers_of(kept), kept.last) == ([4, 5, 6], 6)
    assert numbers_of(kept, after=5) == [6]
    assert numbers_of(kept, after=6) == numbers_of(kept, after=99) == []
    assert numbers_of(kept, most=2) == [5, 6]
    newest = kept.find(6)
    assert newest is not None
    assert (newest.names.tool, newest.result_tokens) == ("echo", 100)
    times = (newest.at_server, newest.workbench, newest.seconds)
    assert times == pytest.approx((0.002, 0.0001, 0.7521))
    assert (newest.queue, newest.start, newest.is_resent, newest.record) == (0.5, 0.25, True, 42)
    assert kept.find(3) is kept.find(7) is None
    assert numbers_of(EndedCalls(9)) == []


@given(st.lists(st.integers(1, 900), max_size=30), st.integers(0, 12_000), st.integers(1, 2500))
def test_what_is_kept_is_found_by_its_number_however_it_came(
    sizes: list[int], after: int, most: int
) -> None:
    kept = EndedCalls(keep=2 * BLOCK)
    for size in sizes:
        first = kept.last + 1
        kept.add([noted(float(first + place)) for place in range(size)], {})

    oldest = max(sum(sizes) - 2 * BLOCK, 0)
    wanted = list(range(max(oldest, after, sum(sizes) - most) + 1, sum(sizes) + 1))
    batch = kept.since(after, most)
    assert [one.number for one in batch.calls()] == wanted
    assert [one.ended for one in batch.calls()] == wanted
    for number in (oldest, oldest + 1, sum(sizes), sum(sizes) + 1):
        one = kept.find(number)
        assert (one is not None) == (oldest < number <= sum(sizes))
        assert one is None or one.ended == number
