"""Replies of the engine: read in whatever pieces they come, and refused where they are absurd."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.cluster.resp import MOST_REPLY, BadReply, EngineError, ReplyReader, command
from tests.threats.growth import assert_linear

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.binary(max_size=40) | st.integers(-(2**63), 2**63 - 1),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def encoded(value: Any) -> bytes:
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    return b"*%d\r\n" % len(value) + b"".join(encoded(item) for item in value)


def depth_of(value: Any) -> int:
    is_list = not isinstance(value, bytes | int | None)
    return 1 + max(map(depth_of, value), default=0) if is_list else 0


@given(st.lists(values.filter(lambda v: depth_of(v) <= 4), max_size=5), st.integers(1, 50))
def test_replies_are_the_same_in_whatever_pieces_they_come(sent: list[object], size: int) -> None:
    data = b"".join(map(encoded, sent))
    reader, read = ReplyReader(), list[object]()
    for at in range(0, len(data), size):
        read += reader.feed(data[at : at + size])

    assert read == sent


@given(st.binary(max_size=200), st.integers(1, 20))
def test_any_bytes_are_read_refused_or_waited_for(data: bytes, size: int) -> None:
    reader = ReplyReader()
    try:
        for at in range(0, len(data), size):
            reader.feed(data[at : at + size])
    except BadReply:
        return
    whole = ReplyReader()
    whole.feed(data)  # in one piece it is no worse


@pytest.mark.parametrize(
    "data",
    [
        b"*900000000\r\n",
        b"$%d\r\n" % (MOST_REPLY + 1),
        b"$-2\r\n",
        b"$5\r\nabcdefg\r\n",
        b"*1\r\n" * 6 + b":1\r\n",
        b":" + b"9" * 30 + b"\r\n",
        b"x" * 2000,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+" + b"a" * 5000,
    ],
)
def test_a_hostile_reply_is_refused(data: bytes) -> None:
    with pytest.raises(BadReply):
        ReplyReader().feed(data)


@pytest.mark.cost
def test_a_long_reply_is_read_once_however_many_pieces_it_comes_in() -> None:
    def read(values: int) -> None:
        data = b"*%d\r\n" % values + b"$8\r\n12345678\r\n" * values
        reader = ReplyReader()
        replies = [
            reply for at in range(0, len(data), 4096) for reply in reader.feed(data[at : at + 4096])
        ]
        assert replies == [[b"12345678"] * values]

    assert_linear(read, int, 40_000)


def test_a_reply_has_a_largest_size_in_all_its_parts() -> None:
    part = b"$65536\r\n" + b"a" * 65536 + b"\r\n"
    reader = ReplyReader()
    reader.feed(b"*1000\r\n")
    for _ in range(MOST_REPLY // len(part)):
        reader.feed(part)

    with pytest.raises(BadReply):
        reader.feed(part)


def test_an_error_reply_is_a_value() -> None:
    (reply,) = ReplyReader().feed(b"-WRONGTYPE Operation against a key\r\n")

    assert isinstance(reply, EngineError)
    assert reply.kind == "WRONGTYPE"


def test_a_command_carries_any_bytes() -> None:
    assert command("SET", b"a\r\nb", 12) == b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$2\r\n12\r\n"
