"""Figures of calls are exact, bounded in size, and cost nothing to keep."""

from __future__ import annotations

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
    CallStats,
    Histogram,
    RecentCall,
    merged,
)

times = st.floats(0, 100)


def call(number: int = 1, ended: float = 1.0, **more: object) -> RecentCall:
    plain = RecentCall(
        number, ended, "host", "local", "stdio", "box", "a", "echo", "ok", False,
        10, 400, 0.0, 0.0, 0.002, 0.0001, False, "",
    )  # fmt: skip
    return msgspec.structs.replace(plain, **more)


def add(stats: CallStats, call: RecentCall, *, configured: bool = True, tool: bool = True) -> None:
    stats.add(call, is_configured=configured, is_tool=tool)


@given(st.lists(st.tuples(times, times, times, times), min_size=1, max_size=30))
def test_every_call_is_in_one_bucket_of_each_histogram(
    splits: list[tuple[float, float, float, float]],
) -> None:
    stats = CallStats()
    for queue, start, server, own in splits:
        add(stats, call(queue=queue, start=start, at_server=server, workbench=own))

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
    stats = CallStats()
    for value in seconds:
        add(stats, call(at_server=value, workbench=0.0))

    estimate = stats.snapshot().series[0].total.quantile(share)

    rank = max(0, -int(-share * len(seconds) // 1) - 1)
    exact = sorted(seconds)[min(rank, len(seconds) - 1)]
    low = max([0.0, *(bound for bound in BOUNDS if bound < exact)])
    high = min([bound for bound in BOUNDS if bound >= exact], default=BOUNDS[-1])
    assert low <= estimate <= high


def test_histograms_are_added_up() -> None:
    stats = CallStats()
    add(stats, call(at_server=0.002))
    add(stats, call(at_server=7.0, server="b"))
    one, two = (series.phases[2] for series in stats.snapshot().series)

    both = merged([one, two])

    assert both.count == 2
    assert both.sum == 7.002
    assert merged([]).count == 0
    assert Histogram((0,) * len(both.counts)).quantile(0.5) == 0.0


def test_what_hosts_write_makes_no_new_series() -> None:
    stats = CallStats()
    for number in range(50):
        made_up = call(toolbox=f"x{number}", tool=f"t{number}", outcome="not_found")
        add(stats, made_up, configured=False, tool=False)

    seen = stats.snapshot()
    assert [(s.toolbox, s.server, s.outcome, s.calls) for s in seen.series] == [
        (OTHER, OTHER, "not_found", 50)
    ]
    assert seen.tools == ()


def test_series_and_tools_are_bounded_and_no_call_is_lost() -> None:
    stats = CallStats()
    for number in range(MOST_TOOLS + 100):
        add(stats, call(number, server=f"s{number}", tool=f"t{number}"))

    seen = stats.snapshot()
    assert len(seen.series) == MOST_SERIES + 1
    assert len(seen.tools) == MOST_TOOLS + 1
    assert sum(s.calls for s in seen.series) == seen.calls == MOST_TOOLS + 100
    assert seen.tools[-1].tool == OTHER
    assert seen.tools[-1].calls == 100


def test_the_timeline_has_an_hour() -> None:
    stats = CallStats()
    for number in range(SLOTS * 2):
        add(stats, call(number, ended=number * SLOT + 1, is_error=number % 2 == 0))

    timeline = stats.snapshot().timeline
    assert len(timeline) == SLOTS
    assert timeline[-1].at == (SLOTS * 2 - 1) * SLOT
    assert [point.errors for point in timeline[:4]] == [1, 0, 1, 0]
    assert {point.calls for point in timeline} == {1}


def test_recent_calls_are_the_newest_and_are_read_on_from_a_number() -> None:
    stats = CallStats()
    add(stats, call(1))
    assert stats.recent() == ()

    stats.keep_recent(keep=True, most=3)
    for number in range(2, 7):
        add(stats, call(number))

    assert [c.number for c in stats.recent()] == [6, 5, 4]
    assert [c.number for c in stats.recent(after=5)] == [6]
    assert [c.number for c in stats.recent(after=6)] == []
    assert [c.number for c in stats.recent(after=99)] == []
    assert [c.number for c in stats.recent(most=2)] == [6, 5]
    assert stats.recent()[0].result_tokens == 100
    assert stats.recent()[0].seconds == 0.0021

    stats.keep_recent(keep=False)
    assert stats.recent() == ()
