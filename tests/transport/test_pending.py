"""Our numbers: never used twice, each answered by whoever asked."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.transport.jsonrpc import PendingRequests


def test_numbers_are_fresh_and_count_from_one() -> None:
    table: PendingRequests[str] = PendingRequests()

    assert [table.add(who, 0.0) for who in "abc"] == [1, 2, 3]
    table.settle(3)
    assert table.add("d", 0.0) == 4


def test_an_answer_is_taken_once() -> None:
    table: PendingRequests[str] = PendingRequests()
    number = table.add("a", 9.0)

    assert table.find(number) == "a"
    assert table.settle(number) == "a"
    assert table.settle(number) is None
    assert table.find(number) is None


def test_a_number_that_nobody_waits_for_is_nobody_s() -> None:
    table: PendingRequests[str] = PendingRequests()

    assert table.settle(0) is None
    assert table.settle(7) is None


@given(st.lists(st.floats(0, 10)), st.floats(0, 10))
def test_exactly_those_whose_time_has_passed_are_taken_out(
    deadlines: list[float], now: float
) -> None:
    table: PendingRequests[float] = PendingRequests()
    for deadline in deadlines:
        table.add(deadline, deadline)

    late = [waiter for _, waiter in table.overdue(now)]

    assert late == [deadline for deadline in deadlines if deadline <= now]
    assert table.count == len(deadlines) - len(late)
    assert table.overdue(now) == []


def test_losing_the_connection_takes_out_everyone_in_order() -> None:
    table: PendingRequests[str] = PendingRequests()
    for who in "ab":
        table.add(who, 1.0)

    assert table.lose() == [(1, "a"), (2, "b")]
    assert table.count == 0
    assert table.add("c", 1.0) == 3
