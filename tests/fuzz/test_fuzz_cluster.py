"""Bytes between replicas, and of the engine: whoever sends them, in whatever pieces."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st

pytest.importorskip("cryptography")  # of the extra `cluster`

from mcp_workbench.cluster.link import MAGIC, AcceptedLink
from mcp_workbench.cluster.resp import BadReply, EngineError, ReplyReader
from tests.cluster.test_hostile_values import ID, KEY, OTHER, Recorder
from tests.fuzz.effort import fuzzed, size

HELLO = MAGIC + OTHER.encode() + ID.encode() + b"0123456789abcdef"
PARTS = [b"*", b"$", b":", b"+", b"-", b"0", b"1", b"3", b"12", b"-1", b"\r\n", b"\r", b"a", b"abc"]

cuts = st.lists(st.integers(0, size(300)), max_size=12)
replies = st.lists(st.sampled_from(PARTS) | st.binary(max_size=4), max_size=size(40)).map(b"".join)
starts = st.integers(0, len(HELLO)).map(lambda end: HELLO[:end])
greetings = st.tuples(starts, st.binary(max_size=size(200))).map(b"".join)


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    places = [0, *sorted(place for place in at if place <= len(data)), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def read(parts: list[bytes]) -> tuple[list[Any], bool]:
    """The replies, and whether the rest is refused."""
    reader, found = ReplyReader(), list[Any]()
    try:
        for part in parts:
            found += reader.feed(part)
    except BadReply:
        return [], True
    return [str(one) if isinstance(one, EngineError) else one for one in found], False


@fuzzed(replies, cuts)
def test_replies_of_the_engine_are_the_same_however_they_are_cut(
    data: bytes, at: list[int]
) -> None:
    whole, parts = read([data]), read(pieces(data, at))
    assert whole[1] == parts[1]
    assert str(whole[0]) == str(parts[0])


class Wire(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return 0


@fuzzed(greetings, cuts)
def test_no_stranger_is_taken_for_a_replica(data: bytes, at: list[int]) -> None:
    async def scene() -> None:
        recorder, wire = Recorder(), Wire()
        link = AcceptedLink(KEY, 1 << 16, ID, recorder)
        link.connection_made(wire)
        for piece in pieces(data, at):
            if not wire.is_aborted:
                link.data_received(piece)
        assert not link.other_id
        assert not recorder.opened_streams
        names_us = data.startswith(MAGIC) and data[len(MAGIC) + len(OTHER) :].startswith(
            ID.encode()
        )
        assert bool(wire.written) == (names_us and len(data) >= len(HELLO))
        link.abort()

    asyncio.run(scene())
