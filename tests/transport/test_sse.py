"""Events: the same whatever the chunks, whatever the line ends; bounded and linear."""

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.transport.http.sse import LONG, Event, EventReader, EventTooLarge, event

LIMIT = 10_000
lines = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"data:  c", b"event: x", b"event", b"id: 7", b"id", b"id: \0",
     b"retry: 12", b"retry: x", b": note", b":", b"other: 1", b"\xef\xbb\xbfdata: d", b"", b"", b""]
)  # fmt: skip
streams = st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=30).map(
    lambda parts: b"".join(line + end for line, end in parts)
)


def read(*chunks: bytes, limit: int = LIMIT) -> tuple[list[Event], EventReader]:
    reader = EventReader(limit)
    return [event for chunk in chunks for event in reader.feed(chunk)], reader


@given(streams | st.binary(max_size=60), st.lists(st.integers(0, 300), max_size=6))
def test_chunks_do_not_matter(stream: bytes, cuts: list[int]) -> None:
    at = sorted({0, len(stream), *(cut for cut in cuts if cut <= len(stream))})
    chunks = [stream[a:b] for a, b in pairwise(at)]

    whole, one = read(stream)
    parts, other = read(*chunks)

    assert parts == whole
    assert (other.last_id, other.retry) == (one.last_id, one.retry)


@given(st.lists(lines, max_size=20))
def test_line_ends_do_not_matter(parts: list[bytes]) -> None:
    found = [read(b"".join(line + end for line in parts))[0] for end in (b"\n", b"\r", b"\r\n")]

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [Event(b"a")]),
        (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"event: endpoint\ndata: /x\n\n", [Event(b"/x", "endpoint")]),
        (b"event: endpoint\n\ndata: b\n\n", [Event(b"b")]),
        (b": ping\n\ndata: a", []),
        (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
        (b"data:\n\n", [Event(b"")]),
        (b"data:  two\n\n", [Event(b" two")]),
    ],
)
def test_an_event_is_read_as_the_standard_says(stream: bytes, events: list[Event]) -> None:
    assert read(stream)[0] == events


def test_an_id_holds_until_another_and_counts_once_its_event_is_whole() -> None:
    reader = EventReader(LIMIT)
    list(reader.feed(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n"))
    assert reader.last_id == "1"

    list(reader.feed(b"\n"))
    assert reader.last_id == "2"


def test_an_event_without_data_still_has_an_id() -> None:
    assert read(b"id: 5\nretry: 2000\n\n")[1].last_id == "5"


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 2000, b"data: xxxxxxxx\n" * 200, b":" + b"x" * 2000]
)
def test_what_is_too_large_is_refused_while_it_arrives(stream: bytes) -> None:
    with pytest.raises(EventTooLarge):
        read(*(stream[n : n + 7] for n in range(0, len(stream), 7)), limit=1000)


def test_an_event_as_large_as_the_limit_passes() -> None:
    assert read(b"data: " + b"x" * 1000 + b"\n\n", limit=1000)[0] == [Event(b"x" * 1000)]


@pytest.mark.cost
def test_time_is_linear_in_a_long_line() -> None:
    def seconds(size: int) -> float:
        chunks = [b"data: ", *[b"x" * 1000] * (size // 1000), b"\n\n"]
        began = time.process_time()
        assert len(read(*chunks, limit=1 << 30)[0]) == 1
        return time.process_time() - began

    small = min(seconds(2_000_000) for _ in range(3))
    large = min(seconds(16_000_000) for _ in range(3))
    assert large < 32 * max(small, 0.002)  # eight times the bytes; the square would be 64 times


@pytest.mark.parametrize("filling", [b"", b"x" * LONG])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n"])
@pytest.mark.parametrize("between", [b"", b"\n", b"\r\n", b"\r"])
def test_what_is_sent_is_one_event_whatever_ends_its_lines(
    between: bytes, end: bytes, filling: bytes
) -> None:
    text = b'{"a":1,' + between + b'"b":"' + filling + b'"}'

    [found], _ = read(event(text + end, b"7", 500), limit=4 * LONG)

    assert json.loads(found.data) == json.loads(text)
    assert event(b"{}\n", b"7", 500) == b"retry: 500\nid: 7\ndata: {}\n\n"
