"""The outbox: whatever it holds when the daemon is killed, no response is cut off or delivered twice."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.daemon.crash_journal import (
    CALL,
    CrashJournal,
    create_journal,
    open_journal,
    read_journal,
)
from mcp_workbench.daemon.outbox import (
    Outbox,
    OutboxWriter,
    create_outbox,
    drain_outbox,
    undelivered,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.stdio import JoinedWrites

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

    def writer(self) -> OutboxWriter:
        return OutboxWriter(self.write, lambda: None, self.journal, LARGE, self.outbox)

    def hear(self, most: int) -> None:
        with suppress(BlockingIOError):
            self.heard += os.read(self.read, most)

    def hear_all(self) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(self.read, 1 << 20):
                self.heard += piece

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


async def test_what_the_host_does_not_read_waits_and_then_comes(way: Way) -> None:
    writer = way.writer()
    frames = [jsonrpc.answer(b"%d" % n, b'"' + b"x" * 50_000 + b'"') for n in range(40)]
    for number, frame in enumerate(frames):
        way.journal.started(b"%d" % number, b"{}", CALL)
        writer.send(frame, b"%d" % number)
    writer.close()

    while len(way.heard) < sum(map(len, frames)):
        way.hear_all()
        await asyncio.sleep(0)

    assert way.heard == b"".join(frames)
    assert read_journal(way.fd).under_way == {}
    async with asyncio.timeout(5):
        await writer.flushed(5)


async def test_a_host_that_is_gone_is_noticed(way: Way) -> None:
    gone = asyncio.Event()
    writer = OutboxWriter(way.write, gone.set, way.journal, LARGE, way.outbox)
    os.dup2(way.fd, way.read)  # closes it

    writer.send(jsonrpc.answer(b"1", b"{}"), b"1")

    async with asyncio.timeout(5):
        await gone.wait()


async def test_a_question_makes_its_call_one_that_is_not_made_again(way: Way) -> None:
    way.journal.started(b"1", b'{"id":1}', CALL, again=True)
    writer = way.writer()

    writer.send(jsonrpc.notification("notifications/progress", b"{}"), b"1")
    assert read_journal(way.fd).under_way[b"1"].line
    writer.send(jsonrpc.question(b'"w1"', "elicitation/create", b"{}"), b"1")

    assert not read_journal(way.fd).under_way[b"1"].line
    writer.abort()
