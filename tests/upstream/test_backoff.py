"""A server that keeps failing: tried at once, then ever more seldom, never given up."""

import pytest

from mcp_workbench.timing import pause
from mcp_workbench.upstream import health as subject
from mcp_workbench.upstream.health import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    OPEN_AFTER,
    PATIENCE,
    Backoff,
    RetryState,
    pause_after,
)
from tests.kit.config import spec


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def attempts_within(seconds: float, *, drawn: float) -> int:
    """Starts of a server that fails at once, with somebody asking for it all the time."""
    clock = Clock()
    backoff = Backoff(clock, lambda: drawn)
    end, count = clock.now + seconds, 0
    while clock.now < end:
        count += 1
        state = backoff.ended(spec("a"), 0.0, 0)
        clock.now = max(clock.now, state.not_before) + 0.01
    return count


def test_the_first_failure_costs_no_pause() -> None:
    assert pause_after(0, 0.5) == pause_after(1, 0.5) == 0.0


def test_pauses_double_up_to_a_minute_whatever_is_drawn() -> None:
    for drawn in (0.0, 0.5, 1.0):
        pauses = [pause_after(n, drawn) for n in range(2, 40)]
        assert pauses == sorted(pauses)
        assert pauses[1] == 2 * pauses[0]
        assert LONGEST_PAUSE * 0.8 <= pauses[-1] <= LONGEST_PAUSE


@pytest.mark.fault("F20", "F21")
def test_a_crash_loop_gets_ten_starts_a_minute_and_twenty_in_ten_minutes_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "FIRST_PAUSE", FIRST_PAUSE / pause(1.0))  # as outside of tests
    for drawn in (0.0, 1.0):
        assert attempts_within(60, drawn=drawn) <= 10
        assert attempts_within(600, drawn=drawn) <= 20


@pytest.mark.fault("F20")
def test_it_is_never_given_up() -> None:
    assert attempts_within(24 * 3600, drawn=0.0) >= 24 * 60 - 10


def test_a_server_that_worked_begins_anew() -> None:
    backoff = Backoff()
    for _ in range(7):
        backoff.ended(spec("a"), 0.0, 0)
    assert backoff.of(spec("a")).is_open

    assert backoff.ended(spec("a"), 3600.0, 1).failures == 0
    assert backoff.of(spec("a")).failures == 0
    assert backoff.ended(spec("a"), 1.0, 50).failures == 0, "it lived shortly, but did its work"


def test_servers_are_counted_apart_and_a_changed_one_begins_anew() -> None:
    backoff = Backoff()
    for _ in range(3):
        backoff.ended(spec("a"), 0.0, 0)

    assert backoff.of(spec("b")).failures == 0
    assert backoff.of(spec("a", "other")).failures == 0
    assert backoff.of(spec("a")).failures == 3


@pytest.mark.fault("F21")
def test_one_line_is_logged_for_each_change() -> None:
    lines = [RetryState(failures).log_line("it ended") for failures in range(1, 100)]

    assert lines[0] == "it ended"
    assert [index + 1 for index, line in enumerate(lines) if line] == [1, OPEN_AFTER]
    assert "keeps failing" in lines[OPEN_AFTER - 1]


def test_who_is_refused_hears_when_the_next_try_is() -> None:
    state = RetryState(6, 107.5)

    assert state.describe(100.0) == "; it failed 6 times in a row, next try in 8 s"
    assert state.describe(107.5 - PATIENCE / 2) == "", "then it is waited for"
