"""The same lines come out however the bytes arrive."""

import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_workbench.transport.json_text import LineFramer

pieces = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"{}", b'{"a":1}', b"\xc3\xa9", b"x"])
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in chunks that end at these places."""
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    chunks = [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    return [chunk for chunk in chunks if chunk]  # a loop never delivers nothing


def fed(chunks: list[bytes], limit: int = 1 << 20) -> list[bytes]:
    framer = LineFramer(limit)
    return [line for chunk in chunks for line in framer.feed(chunk)]


@given(pieces, st.lists(st.integers(0, 200)))
@example([b"{}", b"\r", b"x", b"\n"], [3])
@example([b" ", b"\n", b"{}", b"\n"], [2])
def test_chunking_changes_nothing(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)

    assert fed(cut(data, places)) == fed([data] if data else [])


@given(pieces)
def test_every_line_comes_once_and_in_order(parts: list[bytes]) -> None:
    data = b"".join(parts) + b"\n"

    expected = [line.replace(b"\r", b" ").strip() for line in data.split(b"\n")]

    assert [line.strip() for line in fed([data])] == [line for line in expected if line]


@given(pieces, st.lists(st.integers(0, 200)))
@example([b"{}", b"\r", b"x"], [3])
def test_no_line_holds_a_line_break_of_any_kind(parts: list[bytes], places: list[int]) -> None:
    for line in fed(cut(b"".join(parts) + b"\n", places)):
        assert b"\n" not in line
        assert b"\r" not in line


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"  \n", b" \t\r\n", b"\n\n\n"])
def test_blank_lines_are_left_out(blank: bytes) -> None:
    assert fed([blank]) == []
    assert fed([blank, b"{}\n"]) == [b"{}"]


def test_an_unfinished_line_is_held() -> None:
    framer = LineFramer(100)

    assert list(framer.feed(b"{}\nabc")) == [b"{}"]
    assert list(framer.feed(b"d\n")) == [b"abcd"]


@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.integers(0, 100)))
def test_a_line_passes_up_to_the_cap_and_not_beyond(
    size: int, limit: int, places: list[int]
) -> None:
    framer = LineFramer(limit)

    lines = [line for chunk in cut(b"x" * size + b"\n", places) for line in framer.feed(chunk)]

    assert lines == ([b"x" * size] if size <= limit else [])
    assert (framer.take_overflow() is not None) == (size > limit)
    assert framer.take_overflow() is None  # told once


@given(
    st.lists(st.sampled_from([b"a", b"bb", b"x" * 30]), max_size=8), st.lists(st.integers(0, 300))
)
def test_only_a_line_that_is_too_large_is_lost(lines: list[bytes], places: list[int]) -> None:
    framer = LineFramer(10)
    data = b"".join(line + b"\n" for line in lines)

    found = [line for chunk in cut(data, places) for line in framer.feed(chunk)]

    assert found == [line for line in lines if len(line) <= 10]


def test_the_rest_of_a_line_that_is_too_large_is_no_line() -> None:
    framer = LineFramer(10)

    assert list(framer.feed(b'{"id":5,"xxx')) == []
    assert framer.take_overflow() == b'{"id":5,"xxx'
    assert list(framer.feed(b'","id":1}\n{}\n')) == [b"{}"]
    assert framer.take_overflow() is None


@pytest.mark.cost
def test_a_line_without_end_is_not_kept_beyond_the_cap() -> None:
    framer = LineFramer(1 << 20)
    chunk = b"x" * (1 << 18)

    tracemalloc.start()
    for _ in range(100):
        assert list(framer.feed(bytes(chunk) + b"x")) == []
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 2 << 20


@pytest.mark.cost
@pytest.mark.fault("F10")
def test_a_long_line_costs_linear_time() -> None:
    def seconds(megabytes: int) -> float:
        framer = LineFramer(1 << 30)
        chunk = b"x" * 4096
        since = time.process_time()
        for _ in range(megabytes * 256):
            framer.feed(chunk)
        framer.feed(b"\n")
        return time.process_time() - since

    seconds(1)  # warm

    # Quadratic would be 64 times as much; a busy machine and the allocator get a generous share.
    assert seconds(32) < 30 * max(seconds(4), 0.01)
