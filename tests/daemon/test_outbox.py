"""The outbox: whatever it holds when the daemon is killed, no response is cut off or delivered twice."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.daemon.crash_journal import (
    CALL,
    CrashJournal,
    JournalContents,
    create_journal,
    open_journal,
    read_journal,
)
from mcp_workbench.daemon.outbox import (
    BACKLOG,
    Outbox,
    OutboxWriter,
    create_outbox,
    drain_outbox,
    undelivered,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.stdio import JoinedWrites
from tests.kit.clock import PATIENCE, until

LARGE = 1 << 30


class Way:
    """From the writer to a host that reads when it is told to, and what an attached process would find."""

    def __init__(self, *, is_socket: bool) -> None:
        if is_socket:
            ours, theirs = socket.socketpair()
            self.write, self.read = ours.detach(), theirs.detach()
        else:
            self.read, self.write = os.pipe()
            fcntl.fcntl(self.write, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self.read, False)
        self.fd = create_journal("/tmp")
        self.journal: CrashJournal = open_journal(self.fd)
        outbox = create_outbox()
        assert outbox is not None
        self.outlet = os.dup(outbox.outlet)  # the attached process's
        self.outbox: Outbox = outbox
        self.heard = b""

    def writer(
        self, lost: Callable[[], None] = lambda: None, largest: int = LARGE, *, direct: bool = False
    ) -> OutboxWriter:
        """`direct`: as on a system that can't move bytes from pipe to pipe."""
        if direct:
            self.outbox.close()
        outbox = None if direct else self.outbox
        return OutboxWriter(self.write, lost, self.journal, largest, outbox)

    def hear(self, most: int) -> None:
        with suppress(BlockingIOError):
            self.heard += os.read(self.read, most)

    def hear_all(self) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(self.read, 1 << 20):
                self.heard += piece

    def has_ended(self) -> bool:
        """Has the host read all, to the end?"""
        try:
            return os.read(self.read, 1) == b""
        except BlockingIOError:
            return False

    def recovered(self) -> tuple[bytes, bytes | None]:
        """What an attached process passes on, and the request that it takes as answered by it."""
        return undelivered(drain_outbox(self.outlet), read_journal(self.fd))

    def close(self) -> None:
        for fd in (self.read, self.fd, self.outlet):
            os.close(fd)


@pytest.fixture(params=[False, True], ids=["pipe", "socket"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    way = Way(is_socket=request.param)
    yield way
    way.close()


def answers_in(text: bytes) -> list[int]:
    """The ids of the whole answers; what is cut off is no JSON."""
    ids: list[int] = []
    for line in text.split(b"\n"):
        with suppress(ValueError):
            ids.append(json.loads(line)["id"])
    return ids


steps = st.lists(
    st.one_of(
        st.sampled_from([0, 100, 3_000, 70_000, 600_000]).map(lambda n: ("answer", n)),
        st.sampled_from([10, 5_000, 400_000]).map(lambda n: ("hear", n)),
        st.just(("turn", 0)),
    ),
    max_size=12,
)


@given(steps, st.booleans(), st.booleans())
def test_wherever_it_ends_each_answer_is_there_once_or_under_way(
    steps: list[tuple[str, int]], is_socket: bool, joining: bool
) -> None:
    way = Way(is_socket=is_socket)

    async def run() -> None:
        writer = way.writer()
        for number, (what, size) in enumerate(steps):
            id = b"%d" % number
            if what == "answer":
                way.journal.started(id, b"{}", CALL)
                if joining:
                    JoinedWrites.of(loop := asyncio.get_running_loop()).join(
                        loop
                    )  # they leave at the next turn
                writer.send(jsonrpc.answer(id, b'"' + b"x" * size + b'"'), id)
            elif what == "hear":
                way.hear(size)
            else:
                await asyncio.sleep(0)
        # It is killed here: nothing is flushed, and no end is told.
        rest, whole = way.recovered()
        left = set(read_journal(way.fd).under_way)
        writer.abort()
        way.hear_all()
        left -= {b"%d" % id for id in answers_in(rest)} | {whole}
        sent = [n for n, (what, _) in enumerate(steps) if what == "answer"]
        assert sorted([*answers_in(way.heard + rest), *map(int, left)]) == sent

    asyncio.run(run())
    way.close()


@pytest.mark.parametrize("direct", [False, True], ids=["by an outbox", "directly"])
async def test_what_the_host_does_not_read_waits_and_then_comes(way: Way, direct: bool) -> None:
    writer = way.writer(direct=direct)
    frames = [jsonrpc.answer(b"%d" % n, b'"' + b"x" * 50_000 + b'"') for n in range(40)]
    for number, frame in enumerate(frames):
        way.journal.started(b"%d" % number, b"{}", CALL)
        writer.send(frame, b"%d" % number)
    writer.close()
    assert read_journal(way.fd).under_way

    while len(way.heard) < sum(map(len, frames)):
        way.hear_all()
        await asyncio.sleep(0)

    assert way.heard == b"".join(frames)
    assert read_journal(way.fd).under_way == {}
    await until(way.has_ended)
    async with asyncio.timeout(5):
        await writer.flushed(5)


@pytest.mark.parametrize("joining", [False, True], ids=["at once", "at the end of a turn"])
@pytest.mark.parametrize("direct", [False, True], ids=["by an outbox", "directly"])
async def test_a_host_that_is_gone_is_noticed(way: Way, direct: bool, joining: bool) -> None:
    gone = asyncio.Event()
    writer = way.writer(gone.set, direct=direct)
    os.dup2(way.fd, way.read)  # closes it
    if joining:
        JoinedWrites.of(loop := asyncio.get_running_loop()).join(loop)

    way.journal.started(b"1", b"{}", CALL)
    writer.send(jsonrpc.answer(b"1", b"{}"), b"1")

    async with asyncio.timeout(PATIENCE):
        await gone.wait()
    assert writer.backlog == 0
    assert bool(read_journal(way.fd).under_way) == direct  # else it is in the outbox
    writer.send(jsonrpc.answer(b"2", b"{}"), b"2")
    assert writer.backlog == 0


@pytest.mark.parametrize("direct", [False, True], ids=["by an outbox", "directly"])
async def test_a_host_that_never_reads_is_dropped_at_its_bound_and_not_before(
    way: Way, direct: bool, caplog: pytest.LogCaptureFixture
) -> None:
    largest, gone = 100_000, list[int]()
    writer = way.writer(lambda: gone.append(1), largest, direct=direct)
    frame = jsonrpc.answer(b"1", b'"' + b"x" * 1_000 + b'"')
    most = 0

    for _ in range(4_000):
        if gone:
            break
        most = writer.backlog
        writer.send(frame, b"1")

    assert gone == [1]
    assert BACKLOG * largest - len(frame) < most <= BACKLOG * largest
    assert writer.backlog == 0
    writer.send(frame, b"1")
    assert gone == [1]
    assert caplog.messages == ["a host does not read its messages; its connection was closed"]


LINE = b'{"id":1}\n'


@pytest.mark.parametrize(
    ("left", "part", "expected"),
    [
        (b"", None, (b"", None)),
        (b"", b"7", (b"\n", None)),
        (LINE, None, (LINE, None)),
        (LINE, b"7", (LINE, b"7")),
        (LINE + b'{"id":2', b"7", (LINE, None)),
        (b'{"id":2', b"7", (b"\n", None)),
    ],
    ids=["nothing", "a lost end", "whole", "its end", "a start behind it", "a start alone"],
)
def test_what_a_host_has_not_received_whole_is_ended_or_cut_off(
    left: bytes, part: bytes | None, expected: tuple[bytes, bytes | None]
) -> None:
    assert undelivered(left, JournalContents({}, [], b"", part)) == expected


def test_where_no_bytes_can_be_moved_there_is_no_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "splice")

    assert create_outbox() is None


async def test_a_question_makes_its_call_one_that_is_not_made_again(way: Way) -> None:
    way.journal.started(b"1", b'{"id":1}', CALL, again=True)
    writer = way.writer()

    writer.send(jsonrpc.notification("notifications/progress", b"{}"), b"1")
    assert read_journal(way.fd).under_way[b"1"].line
    writer.send(jsonrpc.question(b'"w1"', "elicitation/create", b"{}"), b"1")

    assert not read_journal(way.fd).under_way[b"1"].line
    writer.abort()
