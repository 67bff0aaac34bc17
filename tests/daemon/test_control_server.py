"""Messages to a client of the control socket arrive whole, however slowly it reads, and never block."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
from contextlib import suppress
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
    control_server,
    pack,
)
from mcp_workbench.daemon.paths import DaemonPaths
from tests.kit.clock import PATIENCE, until
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


class Recorded:
    """Keeps what is asked of it, as the handler of requests and as an attached host."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.clients: list[ControlConnection] = []

    def handle(self, connection: ControlConnection, request: bytes, fields: list[bytes]) -> None:
        self.asked.append([request, *fields])
        self.clients.append(connection)
        connection.host = self
        connection.send(control.GOING)

    def receive_pipes(self, connection: ControlConnection, fds: list[int]) -> None:
        self.asked.append([os.get_inheritable(fd) for fd in fds])
        for fd in fds:
            os.close(fd)

    def reload(self) -> None:
        self.asked.append("reload")

    def left(self) -> None:
        self.asked.append("left")

    def interrupted(self) -> None:
        self.asked.append("interrupted")

    def gone(self) -> None:
        self.asked.append("gone")


def recorded() -> tuple[Recorded, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    handler = Recorded()
    ControlConnection(ours, handler, os.getpid())
    return handler, theirs


async def heard(theirs: socket.socket) -> list[list[bytes]]:
    """All frames until the connection is closed."""
    reader, frames = FrameReader(), list[list[bytes]]()
    with theirs:
        async with asyncio.timeout(PATIENCE):
            while data := await asyncio.get_running_loop().sock_recv(theirs, 1 << 16):
                frames += reader.feed(data)
    return frames


REQUEST = pack(control.FORMAT, control.DOWN, b"a", b"")
ASKED = [control.DOWN, b"a", b""]


@pytest.mark.parametrize(
    ("sent", "asked", "answers"),
    [
        (REQUEST, [], []),
        (REQUEST + pack(control.PING), [], [[control.PONG]]),
        (REQUEST + pack(control.ASKED) + pack(control.INTERRUPTED), ["left", "interrupted"], []),
        (REQUEST + pack(control.RELOAD), ["reload"], []),
        (REQUEST + pack(b"what?") + pack(control.PING), [], [[control.PONG]]),
    ],
    ids=["alone", "heartbeat", "signals", "reload", "unknown"],
)
async def test_what_comes_after_a_request_is_told_to_its_host(
    sent: bytes, asked: list[Any], answers: list[list[bytes]]
) -> None:
    handler, theirs = recorded()

    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)

    assert await heard(theirs) == [[control.GOING], *answers]
    assert handler.asked == [ASKED, *asked, "gone"]


async def test_a_frame_that_is_too_long_ends_its_connection_and_the_host_hears_of_it() -> None:
    handler, theirs = recorded()
    theirs.sendall(REQUEST)
    async with asyncio.timeout(PATIENCE):
        await until(lambda: handler.asked == [ASKED])

    theirs.sendall((MOST_LATER + 1).to_bytes(4, "big"))

    assert await heard(theirs) == [[control.GOING]]
    assert handler.asked == [ASKED, "gone"]


@pytest.mark.parametrize(
    "first", [pack(b"0", control.DOWN), pack(control.FORMAT), pack(b""), pack(control.PING)]
)
async def test_a_client_of_another_version_is_told_so(first: bytes) -> None:
    handler, theirs = recorded()

    theirs.sendall(first + pack(control.PING))
    theirs.shutdown(socket.SHUT_WR)

    refusal = [control.REFUSED, control.LOUDLY, b"it is of another version"]
    assert await heard(theirs) == [refusal, [control.PONG]]
    assert handler.asked == []


async def test_pipes_come_before_the_frame_they_are_sent_with_and_no_server_inherits_them() -> None:
    handler, theirs = recorded()
    pipes = os.pipe()
    theirs.sendall(REQUEST)
    socket.send_fds(theirs, [pack(control.PIPES) + pack(control.RELOAD)], list(pipes))
    theirs.shutdown(socket.SHUT_WR)
    for fd in pipes:
        os.close(fd)

    await heard(theirs)

    assert [one for one in handler.asked if one != ASKED] == [[False, False], "reload", "gone"]


@pytest.mark.parametrize("fds", [(), (0,)], ids=["a frame", "a descriptor"])
async def test_a_client_that_has_left_is_noticed_when_it_is_sent_something(
    fds: tuple[int, ...],
) -> None:
    connection, theirs = connected()
    host = connection.host = Recorded()
    theirs.close()

    connection.send(control.PONG, fds=fds)

    assert connection.is_closed
    assert host.asked == ["gone"]
    connection.send(control.PONG)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DaemonPaths:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    paths = DaemonPaths("config", ".", "here")
    Path(paths.folder).mkdir()
    return paths


async def test_a_server_takes_the_place_that_a_crash_has_left_and_leaves_none(
    paths: DaemonPaths,
) -> None:
    handler = Recorded()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(paths.socket)
    assert connect(paths) is None

    async with control_server(paths, handler):
        mode = stat.S_IMODE(os.lstat(paths.socket).st_mode)
        client = connect(paths)
        assert client is not None
        answer = await asyncio.to_thread(control.request, client, PATIENCE, control.DOWN, b"a", b"")

    assert (mode, answer, handler.asked) == (0o600, [control.GOING], [ASKED])
    assert handler.clients[0].is_closed
    assert client.recv(1) == b""
    client.close()
    with pytest.raises(FileNotFoundError):
        os.lstat(paths.socket)
    assert connect(paths) is None


async def test_a_user_is_connected_to_no_other(
    paths: DaemonPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, ours = Recorded(), os.geteuid()
    async with control_server(paths, handler):
        client = connect(paths)
        assert client is not None
        client.sendall(REQUEST)
        monkeypatch.setattr(os, "geteuid", lambda: ours + 1)

        assert connect(paths) is None
        client.setblocking(False)
        with suppress(ConnectionError):  # its request was not read
            assert await heard(client) == []

    assert handler.asked == []


async def test_a_client_that_comes_while_no_descriptor_is_free_is_served_later(
    paths: DaemonPaths,
) -> None:
    handler = Recorded()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with asyncio.timeout(PATIENCE), control_server(paths, handler):
        client = connect(paths)
        assert client is not None
        client.sendall(REQUEST)
        os.close(free := os.dup(client.fileno()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            for _ in range(5):
                await asyncio.sleep(0)
            assert handler.asked == []
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await until(lambda: bool(handler.asked))

    assert handler.asked[0] == ASKED
    client.close()
