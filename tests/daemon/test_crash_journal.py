"""The crash journal outlives the daemon: whenever writing stops, its contents are usable."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.daemon.control import MOST, BadFrame, FrameReader, pack
from mcp_workbench.daemon.crash_journal import (
    CALL,
    CARRIED_BYTES,
    CHUNK_BYTES,
    CUT,
    OTHER,
    SIZE,
    PendingRequest,
    create_journal,
    open_journal,
    read_journal,
)
from mcp_workbench.transport.json_text import LineFramer
from mcp_workbench.transport.stdio import PIPE_BYTES


def test_it_holds_all_that_is_read_at_once() -> None:
    assert CHUNK_BYTES == PIPE_BYTES


@pytest.fixture
def fd() -> int:
    return create_journal("/tmp")


ids = st.integers(0, 30).map(lambda n: b"%d" % n)


@given(st.lists(st.tuples(st.booleans(), ids, st.booleans(), st.booleans()), max_size=200))
def test_requests_are_under_way_from_their_start_to_their_end(
    steps: list[tuple[bool, bytes, bool, bool]],
) -> None:
    fd = create_journal("/tmp")
    journal, model = open_journal(fd), dict[bytes, PendingRequest]()
    for begins, id, is_call, again in steps:
        if begins:
            line = b'{"id":%b}' % id
            journal.started(id, line, CALL if is_call else OTHER, again=again)
            model[id] = PendingRequest(is_call, line if again else b"")
        else:
            journal.finished(id)
            model.pop(id, None)
    assert read_journal(fd).under_way == model
    os.close(fd)


def test_a_long_run_needs_little_room(fd: int) -> None:
    journal = open_journal(fd)
    for number in range(100_000):
        journal.started(b"%d" % number, b"{}", CALL, again=bool(number % 2))
        if number >= 10:
            journal.finished(b"%d" % (number - 10))

    assert sorted(read_journal(fd).under_way) == sorted(b"%d" % n for n in range(99_990, 100_000))
    assert os.fstat(fd).st_blocks * 512 < 100_000
    os.close(fd)


@given(st.lists(st.text("xy\n", min_size=1, max_size=40).map(str.encode)))
def test_what_was_read_and_not_handled_is_there(chunks: list[bytes]) -> None:
    fd = create_journal("/tmp")
    journal, whole = open_journal(fd), b""
    for chunk in chunks:
        journal.chunk[: len(chunk)] = chunk
        whole += chunk
        journal.chunk_handled(chunk)

    contents = read_journal(fd)

    assert contents.lines == []
    assert contents.rest == whole.rpartition(b"\n")[2]
    os.close(fd)


def test_in_the_middle_of_a_chunk_the_rest_of_it_is_left(fd: int) -> None:
    journal = open_journal(fd)
    for data in (b"one\ntw", b"o\n\nthree\nfour\nfi"):
        journal.chunk[: len(data)] = data
        if data.startswith(b"one"):
            journal.lines_handled(1)
            journal.chunk_handled(data)
    journal.lines_handled(2)

    assert read_journal(fd)[1:3] == ([b"four"], b"fi")
    os.close(fd)


def test_of_a_long_line_the_start_is_kept_and_marked(fd: int) -> None:
    journal = open_journal(fd)
    for _ in range(3):
        journal.chunk[:CARRIED_BYTES] = b"x" * CARRIED_BYTES
        journal.chunk_handled(b"x" * CARRIED_BYTES)

    rest = read_journal(fd).rest

    assert rest == b"x" * (CARRIED_BYTES - 1) + CUT
    os.close(fd)


class Killed(Exception):
    """The writer of the journal is no more."""


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
    fd = create_journal("/tmp")
    journal = open_journal(fd)
    system, writes_left = journal.chunk, [lives]
    for view in ("memory", "numbers", "chunk"):
        setattr(journal, view, Dying(getattr(journal, view), writes_left))
    framer, begun, came = LineFramer(1000), list[bytes](), b""
    with suppress(Killed):
        for chunk in chunks:
            system[: len(chunk)] = chunk
            came += chunk
            for count, line in enumerate(framer.feed(chunk)):
                id = b"%d" % len(begun)
                journal.started(id, line, CALL, again=True)
                begun.append(line)
                journal.lines_handled(count + 1)
            journal.chunk_handled(chunk)

    contents = read_journal(fd)

    *whole, rest = came.split(b"\n")
    lines = [line for line in whole if line]
    recorded = [request.line for request in contents.under_way.values()]
    assert contents.rest == rest
    assert recorded == lines[: len(recorded)]
    assert begun in (recorded, recorded[:-1])
    # One that was just recorded may be among those that were not handled, too.
    assert lines in ([*recorded, *contents.lines], [*recorded, *contents.lines[1:]])
    os.close(fd)


@given(st.lists(st.lists(st.binary().map(lambda b: b.replace(b"\0", b"")), min_size=1)), st.data())
def test_frames_come_out_as_they_went_in(frames: list[list[bytes]], data: st.DataObject) -> None:
    stream, reader, received = (
        b"".join(pack(*f) for f in frames),
        FrameReader(),
        list[list[bytes]](),
    )
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += reader.feed(stream[:size])
        stream = stream[size:]

    assert received == frames


def test_a_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadFrame):
        FrameReader().feed((MOST + 1).to_bytes(4, "big"))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only there can a size be kept")
def test_whoever_has_the_descriptor_can_not_take_the_memory_away(fd: int) -> None:
    for size in (0, SIZE // 2, 2 * SIZE):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
