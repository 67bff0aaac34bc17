"""The note that outlives the daemon: whenever writing stops, what stands there can be used."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.daemon.note import (
    CALL,
    CARRIED_BYTES,
    CHUNK_BYTES,
    CUT,
    OTHER,
    UnderWay,
    new_note,
    open_note,
    read_note,
)
from mcp_workbench.daemon.words import MOST, BadFrame, Frames, packed
from mcp_workbench.wire.frames import LineFramer
from mcp_workbench.wire.stdio import PIPE_BYTES


def test_it_holds_all_that_is_read_at_once() -> None:
    assert CHUNK_BYTES == PIPE_BYTES


@pytest.fixture
def fd() -> int:
    return new_note("/tmp")


ids = st.integers(0, 30).map(lambda n: b"%d" % n)


@given(st.lists(st.tuples(st.booleans(), ids, st.booleans(), st.booleans()), max_size=200))
def test_requests_are_under_way_from_their_start_to_their_end(
    steps: list[tuple[bool, bytes, bool, bool]],
) -> None:
    fd = new_note("/tmp")
    note, model = open_note(fd), dict[bytes, UnderWay]()
    for begins, id, is_call, again in steps:
        if begins:
            line = b'{"id":%b}' % id
            note.begun(id, line, CALL if is_call else OTHER, again=again)
            model[id] = UnderWay(is_call, line if again else b"")
        else:
            note.ended(id)
            model.pop(id, None)
    assert read_note(fd).under_way == model
    os.close(fd)


def test_a_long_run_needs_little_room(fd: int) -> None:
    note = open_note(fd)
    for number in range(100_000):
        note.begun(b"%d" % number, b"{}", CALL, again=bool(number % 2))
        if number >= 10:
            note.ended(b"%d" % (number - 10))

    assert sorted(read_note(fd).under_way) == sorted(b"%d" % n for n in range(99_990, 100_000))
    assert os.fstat(fd).st_blocks * 512 < 100_000
    os.close(fd)


@given(st.lists(st.text("xy\n", min_size=1, max_size=40).map(str.encode)))
def test_what_was_read_and_not_looked_at_is_there(chunks: list[bytes]) -> None:
    fd = new_note("/tmp")
    note, whole = open_note(fd), b""
    for chunk in chunks:
        note.chunk[: len(chunk)] = chunk
        whole += chunk
        note.done(chunk)

    left = read_note(fd)

    assert left.lines == []
    assert left.rest == whole.rpartition(b"\n")[2]
    os.close(fd)


def test_in_the_middle_of_a_chunk_the_rest_of_it_is_left(fd: int) -> None:
    note = open_note(fd)
    for data in (b"one\ntw", b"o\n\nthree\nfour\nfi"):
        note.chunk[: len(data)] = data
        if data.startswith(b"one"):
            note.looked_at(1)
            note.done(data)
    note.looked_at(2)

    assert read_note(fd)[1:3] == ([b"four"], b"fi")
    os.close(fd)


def test_of_a_long_line_the_start_is_kept_and_marked(fd: int) -> None:
    note = open_note(fd)
    for _ in range(3):
        note.chunk[:CARRIED_BYTES] = b"x" * CARRIED_BYTES
        note.done(b"x" * CARRIED_BYTES)

    rest = read_note(fd).rest

    assert rest == b"x" * (CARRIED_BYTES - 1) + CUT
    os.close(fd)


class Killed(Exception):
    """The writer of the note is no more."""


class Dying:
    """Memory whose writer is killed after so many writes; all views of it share a life."""

    def __init__(self, memory: Any, lives: list[int]) -> None:
        self._memory = memory
        self._lives = lives

    def __setitem__(self, at: Any, value: Any) -> None:
        if not self._lives[0]:
            raise Killed
        self._lives[0] -= 1
        self._memory[at] = value


@given(st.lists(st.text("xyz\n", min_size=1, max_size=30).map(str.encode)), st.integers(0, 150))
def test_whenever_it_is_killed_no_line_is_lost_or_begun_twice(
    chunks: list[bytes], lives: int
) -> None:
    fd = new_note("/tmp")
    note = open_note(fd)
    system, left_to_it = note.chunk, [lives]
    for view in ("memory", "numbers", "chunk"):
        setattr(note, view, Dying(getattr(note, view), left_to_it))
    framer, begun, came = LineFramer(1000), list[bytes](), b""
    with suppress(Killed):
        for chunk in chunks:
            system[: len(chunk)] = chunk
            came += chunk
            for count, line in enumerate(framer.feed(chunk)):
                id = b"%d" % len(begun)
                note.begun(id, line, CALL, again=True)
                begun.append(line)
                note.looked_at(count + 1)
            note.done(chunk)

    left = read_note(fd)

    *whole, rest = came.split(b"\n")
    lines = [line for line in whole if line]
    noted = [request.line for request in left.under_way.values()]
    assert left.rest == rest
    assert noted == lines[: len(noted)]
    assert begun in (noted, noted[:-1])
    # One that was just noted may be among those that were not looked at, too.
    assert lines in ([*noted, *left.lines], [*noted, *left.lines[1:]])
    os.close(fd)


@given(st.lists(st.lists(st.binary().map(lambda b: b.replace(b"\0", b"")), min_size=1)), st.data())
def test_frames_come_out_as_they_went_in(frames: list[list[bytes]], data: st.DataObject) -> None:
    stream, reader, found = b"".join(packed(*f) for f in frames), Frames(), list[list[bytes]]()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]

    assert found == frames


def test_a_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadFrame):
        Frames().feed((MOST + 1).to_bytes(4, "big"))
