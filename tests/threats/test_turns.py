"""Whoever sends very many small things lets others have their turns in between."""

from __future__ import annotations

import asyncio
import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.daemon.crash_journal import create_journal, open_journal, read_journal
from mcp_workbench.daemon.joined_front import JoinedFront
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.stdio import PART_BYTES, PIPE_BYTES, STEP, PipeReader
from mcp_workbench.upstream.conversation import Conversation
from tests.kit.clock import PATIENCE
from tests.threats.growth import ratio

LINES = b"".join(b"%d\n" % n for n in range(4000))  # several parts, in one reading of a pipe


class Others:
    """Counts the turns that others have."""

    def __init__(self) -> None:
        self.turns = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.turns += 1
        self._handle = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._handle.cancel()


class Slow:
    """Takes longer for each part than a step may have, and notes the others' turns before it."""

    def __init__(self, others: Others) -> None:
        self.parts: list[bytes] = []
        self.turns: list[int] = []
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self._others = others

    def receive(self, data: bytes) -> None:
        self.begun.set()
        self.parts.append(data)
        self.turns.append(self._others.turns)
        time.sleep(STEP)


def filled_pipe(data: bytes) -> int:
    """The reading end of a pipe that has all of this, and is closed."""
    read, write = os.pipe()
    assert os.write(write, data) == len(data)
    os.close(write)
    return read


class Midway(PipeReader):
    """Reads as it does behind a large message: as much as the pipe may hold."""

    def __init__(self, fd: int, slow: Slow) -> None:
        super().__init__(fd, slow.receive, slow.ended.set)
        self._most = PIPE_BYTES


async def parts_of(data: bytes) -> Slow:
    others = Others()
    slow = Slow(others)
    Midway(filled_pipe(data), slow)
    async with asyncio.timeout(PATIENCE):
        await slow.ended.wait()
    others.stop()
    return slow


async def test_many_lines_are_handed_on_in_parts_with_others_turns_between() -> None:
    slow = await parts_of(LINES)

    assert b"".join(slow.parts) == LINES
    assert len(slow.parts) > 5
    assert all(len(part) <= PART_BYTES and part.endswith(b"\n") for part in slow.parts)
    assert all(before < after for before, after in zip(slow.turns, slow.turns[1:], strict=False))


async def test_a_long_line_is_handed_on_as_it_came_and_what_follows_in_parts() -> None:
    line = b"x" * 30_000 + b"\n"

    slow = await parts_of(line + LINES)

    assert slow.parts[0] == line
    assert len(slow.parts) > 5
    assert b"".join(slow.parts[1:]) == LINES


@pytest.mark.parametrize("act", ["hold", "close"])
async def test_between_the_parts_it_can_be_held_or_closed(act: str) -> None:
    others = Others()
    slow = Slow(others)
    read, write = os.pipe()
    os.write(write, LINES)
    reader = PipeReader(read, slow.receive, slow.ended.set)
    async with asyncio.timeout(PATIENCE):
        await slow.begun.wait()
        if act == "close":
            reader.close()
            seen = len(slow.parts)
            await asyncio.sleep(2 * STEP)
            assert len(slow.parts) == seen
        else:
            reader.hold(held=True)
            os.close(write)
            await asyncio.sleep(2 * STEP)
            assert not slow.ended.is_set()
            reader.hold(held=False)
            await slow.ended.wait()
            assert b"".join(slow.parts) == LINES
    others.stop()
    if act == "close":
        os.close(write)


def _never(line: bytes) -> bool:
    return False


class Plain:
    """As much of a session as lines need that are no messages, and a channel for what is said of them."""

    era = SimpleNamespace(revision="2025-06-18", modern=False)
    backlog = 0

    def __init__(self) -> None:
        self.express = SimpleNamespace(take=_never)
        self.under_way: dict[bytes, object] = {}
        self.count = 0
        self.line = b""
        self.sent = 0

    def receive(self, message: object) -> None: ...

    def send(self, frame: bytes, about: bytes = b"") -> None:
        self.sent += 1


class Joined:
    """A joined host whose lines come in parts of what was read at once."""

    def __init__(self, data: bytes) -> None:
        self.fd = create_journal("/tmp")
        self.note = open_journal(self.fd)
        self.session: Any = Plain()
        self.front = JoinedFront(
            self.session, self.session, 1 << 20, self.note, lambda *fields: None
        )
        self.note.chunk[: len(data)] = data
        self.note.read(len(data))

    @property
    def left(self) -> list[bytes]:
        """The lines that whoever takes over would have to look at."""
        return read_journal(self.fd).lines


def test_between_the_parts_the_note_of_a_joined_host_knows_which_lines_are_done() -> None:
    joined = Joined(b"1\n2\n3\n4\nrest")

    assert joined.left == [b"1", b"2", b"3", b"4"]
    joined.front.receive(b"1\n2\n")
    assert joined.left == [b"3", b"4"]
    joined.front.receive(b"3\n")
    assert joined.left == [b"4"]
    joined.front.receive(b"4\nrest")
    assert joined.left == []
    assert read_journal(joined.fd).rest == b"rest"
    assert joined.session.sent == 4


def test_what_a_joined_host_asks_for_in_a_part_after_we_began_to_close_stays_in_the_note() -> None:
    request = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    joined = Joined(b"1\n%b\n2\n" % request)

    joined.front.receive(b"1\n")
    joined.front.is_closing = True
    joined.front.receive(b"%b\n" % request)
    joined.front.receive(b"2\n")

    assert joined.left == [request, b"2"]
    assert joined.session.sent == 1


@pytest.mark.cost
def test_a_short_batch_costs_little_more_than_another_line() -> None:
    talk = Conversation(1 << 20, lambda message: None)
    lines, batches = b"1\n" * 2000, b"[]\n" * 2000

    assert ratio(lambda: talk.receive(batches), lambda: talk.receive(lines), 3) <= 3
    assert jsonrpc.read_batch(b'[ {"a":1}, 2 ]') == [b'{"a":1}', b"2"]
