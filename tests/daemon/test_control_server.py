"""Messages to a client of the control socket arrive whole, however slowly it reads, and never block."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.daemon import control
from mcp_workbench.daemon.control import (
    MOST_FIELDS,
    MOST_LATER,
    MOST_REQUEST,
    MOST_UNSENT,
    BadFrame,
    ControlConnection,
    FrameReader,
    NoAnswer,
    connect,
    pack,
)
from mcp_workbench.daemon.paths import DaemonPaths
from tests.kit.clock import PATIENCE
from tests.threats.growth import assert_linear, cost, peak

LONG = b"x" * (1 << 20)


class NoHandler:
    """A handler that gets no requests."""

    def handle(self, connection: Any, request: bytes, fields: list[bytes]) -> None: ...
    def receive_pipes(self, connection: Any, fds: list[int]) -> None: ...
    def reload(self) -> None: ...


def connected() -> tuple[ControlConnection, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return ControlConnection(ours, NoHandler(), os.getpid()), theirs


async def test_a_long_report_arrives_whole_at_a_client_that_reads_slowly() -> None:
    connection, theirs = connected()
    reader, received = control.FrameReader(), list[list[bytes]]()
    connection.send(control.REPORT, LONG)
    connection.send(control.PONG)

    async with asyncio.timeout(PATIENCE):
        while len(received) < 2:
            received += reader.feed(await asyncio.get_running_loop().sock_recv(theirs, 1 << 14))

    assert received == [[control.REPORT, LONG], [control.PONG]]
    connection.close()
    theirs.close()


async def test_a_client_that_never_reads_is_dropped() -> None:
    connection, theirs = connected()
    for _ in range(2 * MOST_UNSENT // len(LONG)):
        connection.send(control.REPORT, LONG)

    assert connection.is_closed
    theirs.close()


def refused(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        FrameReader(MOST_REQUEST, MOST_LATER).feed(frame)


@pytest.mark.cost
def test_a_request_of_nothing_but_separators_is_refused_unread() -> None:
    separators = pack(b"\0" * MOST_REQUEST)
    letters = pack(b"a" * MOST_REQUEST)

    assert peak(lambda: refused(separators)) <= 4 * MOST_REQUEST
    reading = cost(lambda: FrameReader(MOST_REQUEST).feed(letters))
    assert cost(lambda: refused(separators)) <= 10 * reading


def test_a_request_is_refused_by_its_length_before_it_arrives() -> None:
    refused((MOST_REQUEST + 1).to_bytes(4, "big"))
    refused(pack(control.FORMAT, control.JOIN) + (MOST_LATER + 1).to_bytes(4, "big"))


def test_an_environment_as_large_as_a_system_allows_is_read() -> None:
    variables = [b"SOME_VARIABLE_%d=%b" % (n, b"a" * 200) for n in range(MOST_FIELDS // 2)]

    assert FrameReader(MOST_REQUEST).feed(pack(control.JOIN, *variables)) == [
        [control.JOIN, *variables]
    ]


@pytest.mark.cost
def test_very_many_frames_at_once_are_read_in_proportion() -> None:
    assert_linear(
        lambda data: FrameReader().feed(data), lambda size: pack(b"") * (size // 4), 1 << 20
    )


async def test_a_flood_of_heartbeats_is_answered_in_turns() -> None:
    connection, theirs = connected()
    loop = asyncio.get_running_loop()
    theirs.send(pack(control.FORMAT, control.STATUS) + pack(control.PING) * 4000)
    reader, answers, turns = FrameReader(), 0, 0

    async with asyncio.timeout(PATIENCE):
        while answers < 4000:
            answers += len(reader.feed(await loop.sock_recv(theirs, 1 << 20)))
            turns += 1

    assert turns >= 2
    connection.close()
    theirs.close()


@pytest.mark.usefixtures("short_deadlines")
def test_a_daemon_with_a_full_queue_is_one_that_does_not_accept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    paths = DaemonPaths("config", ".", "full")
    Path(paths.folder).mkdir()
    waiting: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(paths.socket)
        listener.listen(1)
        try:
            while len(waiting) < 10:
                client = socket.socket(socket.AF_UNIX)
                waiting.append(client)
                client.setblocking(False)
                client.connect(paths.socket)
        except BlockingIOError:
            pass

        with pytest.raises(NoAnswer, match="does not accept"):
            connect(paths)

    for client in waiting:
        client.close()


RESET = "reset"  # the daemon ended with the request unread


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (pack(b"ok", b"a", b""), [b"ok", b"a", b""]),
        (b"", []),
        (pack(b"ok")[:-1], []),
        ((control.MOST + 1).to_bytes(4, "big"), []),
        (pack(*[b""] * (MOST_FIELDS + 1)), []),
        (RESET, []),
    ],
    ids=["whole", "ended", "in part", "too long", "too many fields", "reset"],
)
def test_an_answer_is_whole_or_none(answer: bytes | str, expected: list[bytes]) -> None:
    """Also where what answers there is no daemon."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if isinstance(answer, bytes):
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)
        else:
            ours.sendall(b"unread")
            theirs.close()

        assert control.request(ours, PATIENCE, control.STATUS) == expected


@pytest.mark.usefixtures("short_deadlines")
def test_a_daemon_that_does_not_answer_is_named_as_such() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(NoAnswer, match=r"has not answered for 0\.05 seconds"):
        control.request(ours, 0.05, control.STATUS)
