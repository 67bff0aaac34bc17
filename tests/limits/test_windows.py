"""The window of a limit per minute: what fits, when there is room again, and clocks that jump."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.principal_limits import (
    WINDOW,
    CallWindow,
    Usage,
    begin_call,
    begin_request,
    limits_of,
)
from mcp_workbench.core.spec import (
    HttpSettings,
    IssuerSettings,
    NamedToken,
    PrincipalLimits,
)

steps = st.lists(st.floats(0, 90, allow_nan=False), max_size=300)


@given(steps, st.integers(1, 20))
def test_no_sixty_seconds_have_more_than_the_limit(pauses: list[float], most: int) -> None:
    window, now, taken = CallWindow(), 0.0, list[float]()
    for pause in pauses:
        now += pause / 10
        if not window.take(most, now):
            taken.append(now)
    for index, begin in enumerate(taken):
        assert sum(time - begin < WINDOW for time in taken[index:]) <= most


@given(steps, st.integers(1, 20))
def test_who_waits_as_long_as_asked_is_admitted(pauses: list[float], most: int) -> None:
    window, now = CallWindow(), 0.0
    for pause in pauses:
        now += pause / 10
        wait = window.take(most, now)
        assert 0 <= wait <= WINDOW + 1
        if wait:
            now += wait
            assert not window.take(most, now)


def test_a_full_minute_is_used_at_least_to_98_percent() -> None:
    window, admitted = CallWindow(), 0
    for tenth in range(36_000):  # an hour, with ten times as many as allowed
        admitted += not window.take(60, tenth / 10)
    assert 0.98 * 3600 <= admitted <= 3660


def test_a_window_keeps_one_number_for_each_second() -> None:
    window = CallWindow()
    for call in range(100_000):
        window.take(1_000_000, call / 1000)
    assert len(window) <= WINDOW + 1


def test_a_clock_that_goes_back_neither_opens_nor_closes_the_limit_for_long() -> None:
    window = CallWindow()
    assert not any(window.take(10, 5000.0) for _ in range(10))
    assert window.take(10, 100.0) <= WINDOW + 1  # back: full, and never for longer than a minute
    assert window.take(10, 99_000.0) == 0  # forward: everything is long ago
    assert window.take(10, 4000.0) == 0
    assert window.total == 2


def test_after_a_clock_went_back_the_limit_still_holds() -> None:
    window = CallWindow()
    window.take(100, 5000.0)
    taken = sum(not window.take(10, 100.0 + second) for second in range(50))
    assert taken == 9


def test_a_lower_limit_waits_until_enough_is_forgotten() -> None:
    window = CallWindow()
    for second in range(10):
        window.take(10, float(second))
    assert window.take(3, 10.0) == 7 + WINDOW + 1 - 10.0
    assert window.take(100, 10.0) == 0


def test_a_call_counts_once_however_often_it_is_sent() -> None:
    usage, limits, call = Usage(), PrincipalLimits(2, 2), object()
    assert begin_call(usage, call, limits, 0.0) is None
    assert begin_call(usage, call, limits, 0.0) is None
    assert (usage.calls.total, len(usage.running)) == (1, 1)


def test_a_call_that_does_not_fit_uses_nothing() -> None:
    usage, limits = Usage(), PrincipalLimits(5, 1)
    assert begin_call(usage, "first", limits, 0.0) is None
    for _ in range(100):
        excess = begin_call(usage, "second", limits, 0.0)
        assert excess is not None
        assert excess.key == "concurrentCalls"
    assert usage.calls.total == 1
    usage.running.clear()
    assert begin_call(usage, "second", limits, 0.0) is None


def test_requests_are_not_counted_without_a_limit_of_calls() -> None:
    usage = Usage()
    assert begin_request(usage, PrincipalLimits(concurrent_calls=1), 0.0) == 0
    assert begin_request(usage, None, 0.0) == 0
    assert usage.is_idle(0.0)


def test_a_person_can_not_have_the_limits_of_a_token_of_the_same_name() -> None:
    own, everybody = PrincipalLimits(1), PrincipalLimits(2)
    auth = IssuerSettings("https://login.example.com", "a", "a", limits=everybody)
    http = HttpSettings(tokens=(NamedToken("alice", "x", limits=own),), auth=auth)
    assert limits_of(http, "alice") == own
    assert limits_of(http, "sub:alice") == everybody
    assert limits_of(http, "sub:") == everybody
    assert limits_of(http, "mallory") is None
    assert limits_of(HttpSettings(), "sub:alice") is None
