"""What is known of a stream after one event: whole, with a gap, or unfinished. No replicas, no engine."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cluster.shared_streams import (
    MOST_SESSION,
    StreamAfter,
    StreamEntry,
    StreamRecorder,
)
from mcp_workbench.cluster.shared_streams import _values as values  # pyright: ignore[reportPrivateUsage]
from mcp_workbench.transport import jsonrpc

REPLY = jsonrpc.refusal(b"7", jsonrpc.error_object(-1, "x"))
OPENED = StreamEntry("opened", 3, 0, b'[7,"8"]')


def sent(count: int, data: bytes = b"{}\n", stream: int = 3) -> StreamEntry:
    return StreamEntry("sent", stream, count, data)


def test_events_are_given_in_their_order_without_those_of_other_streams() -> None:
    rest = StreamAfter([sent(3), OPENED, sent(2), sent(1, stream=4), sent(1)], 3, 1)

    assert [count for count, _ in rest.events] == [2, 3]
    assert rest.is_known
    assert rest.is_whole
    assert not rest.has_ended


@pytest.mark.parametrize(
    "events",
    [
        [sent(3)],
        [sent(2), sent(4)],
        [sent(2), StreamEntry("large", 3, 3)],
        [sent(2, b"{}")],
        [sent(2, b"{}\n\ndata: {}\n")],
    ],
    ids=["the next is missing", "one between", "one too long", "no frame", "two frames"],
)
def test_a_gap_is_noticed(events: list[StreamEntry]) -> None:
    assert not StreamAfter([OPENED, *events], 3, 1).is_whole


def test_requests_without_a_reply_are_known_also_if_the_host_has_other_replies() -> None:
    assert StreamAfter([OPENED, sent(1, REPLY)], 3, 1).unanswered() == [b'"8"']
    assert StreamAfter([OPENED, sent(1)], 3, 1).unanswered() == [b"7", b'"8"']
    assert StreamAfter([StreamEntry("opened", 3, 0, b'[{}, "x"')], 3, 0).unanswered() == []


def test_what_stays_in_the_engine_is_bounded() -> None:
    recorder = StreamRecorder(None, "s")  # pyright: ignore[reportArgumentType] - it writes nothing here

    assert [recorder.room_for(MOST_SESSION // 2) for _ in range(4)] == [1, 2, 2, 2]
    assert max(recorder.room_for(1) for _ in range(1000)) == 256


@given(
    st.recursive(
        st.binary(max_size=8) | st.integers() | st.none(), lambda s: st.lists(s, max_size=4)
    )
)
def test_any_reply_of_the_engine_can_be_read(reply: object) -> None:
    assert all(isinstance(value, bytes) for value in values(reply))


@given(st.binary(max_size=200))
def test_entries_that_no_replica_wrote_are_refused_or_have_the_right_types(data: bytes) -> None:
    try:
        entries = msgspec.msgpack.decode(data, type=list[StreamEntry])
    except (msgspec.DecodeError, ValueError):
        return
    assert StreamAfter(entries, 0, 0).is_whole in (True, False)
