"""A host's huge message takes steps of its own: what follows it waits in order, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.daemon.crash_journal import CUT, create_journal, open_journal, read_journal
from mcp_workbench.daemon.joined_front import JoinedFront
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport import json_text
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
from mcp_workbench.transport.http.reading import HEAD_TIME
from mcp_workbench.transport.http.server import HttpServer, listening
from mcp_workbench.transport.stdio import PIPE_BYTES, STEP
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import PATIENCE, until
from tests.kit.command import COMMAND, environ
from tests.kit.config import config_file, entry, snapshot
from tests.kit.http_host import Peer, Port, rpc
from tests.kit.http_host import port as http_port
from tests.kit.memory_host import MemoryHost
from tests.kit.pipe_host import PipeHost
from tests.kit.results import use_tool
from tests.kit.shared import shared

CHUNK = 64 << 10
HUGE = 8 * CHUNK  # here; what is larger takes the same steps, and costs more
LONG = b"a" * (HUGE + 1000)
LONG_FOR_COMMANDS = b"a" * (json_text.HUGE + 1000)
BATCHES = "2025-03-26"


@pytest.fixture(scope="module", autouse=True)
def smaller_messages_are_huge() -> Iterator[None]:
    """In this process, for all who compare with the limit; commands have their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("mcp_workbench.") and "HUGE" in vars(module):
                patch.setattr(module, "HUGE", HUGE)
        yield


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Here the loop is the subject."""
    return "asyncio", {"use_uvloop": request.param}


def ping(id: int, more: bytes = b"") -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"ping"%b}' % (id, more)


def huge_ping(id: int, text: bytes = LONG) -> bytes:
    return ping(id, b',"params":{"a":"%b"}' % text)


def chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


@asynccontextmanager
async def stdio(revision: str = BATCHES) -> AsyncGenerator[tuple[StdioFront, MemoryHost]]:
    host = MemoryHost()
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(snapshot()) as gateway,
        task_scope() as requests,
    ):
        session = HostSession(gateway.view, host, requests, ToolView(gateway.view, ()))
        session.era.revision = revision
        yield StdioFront(session, host, 4 * HUGE), host
        session.close()


# On stdin

# A huge line, and to which requests there are answers.
FIRST: dict[str, tuple[bytes, list[int | None]]] = {
    "a request": (huge_ping(1), [1]),
    "half a character": (huge_ping(1, LONG + rb"\ud800"), [1]),
    "a byte order mark": (b"\xef\xbb\xbf" + huge_ping(1), [1]),
    "params that are no object": (ping(1, b',"params":"%b"' % LONG), [1]),
    "many members": (ping(1, b',"params":{%b"a":1}' % (b'"":0,' * (HUGE // 5))), [1]),
    "a notification": (
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"%b"}}' % LONG,
        [],
    ),
    "no UTF-8": (huge_ping(1, LONG + b"\xff"), [1]),
    "too deep": (ping(1, b',"params":{"a":%b}' % (b"[" * 2000 + b"]" * 2000 + b" " * HUGE)), [1]),
    "a broken request": (huge_ping(1)[:-1], [1]),
    "a broken character": (huge_ping(1, LONG + rb"\ud8"), [1]),
    "a batch": (b"[%b,%b]" % (huge_ping(1), ping(7)), [1, 7]),
    "spaces": (b" " * (HUGE + 1000), []),
    "too long": (huge_ping(1, b"a" * (4 * HUGE + CHUNK)), [1]),
}


@pytest.mark.parametrize("name", FIRST)
async def test_what_follows_a_huge_message_is_answered_after_it(name: str) -> None:
    line, expected = FIRST[name]
    behind = b"%b\r\n\n%b\n%b\n%b\n%b" % (
        ping(2),
        ping(3),
        huge_ping(4),
        huge_ping(5),
        ping(6)[:9],
    )
    async with stdio() as (front, host):
        for chunk in chunks(line + b"\n" + behind):
            front.receive(chunk)
        front.receive(ping(6)[9:] + b"\n")
        await front.all_read()

        answered = [message["id"] for message in host.messages]
        assert answered == [*expected, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", FIRST)
async def test_a_huge_message_is_answered_like_one_that_is_read_at_once(name: str) -> None:
    line, _ = FIRST[name]
    answers: list[list[dict[str, Any]]] = []
    for parts in (chunks(line + b"\n"), iter((line + b"\n",))):
        async with stdio() as (front, host):
            for part in parts:
                front.receive(part)
            await front.all_read()
            answers.append(host.messages)

    assert answers[0] == answers[1]


async def test_others_have_turns_while_a_huge_message_is_read() -> None:
    async with stdio() as (front, host):
        for chunk in chunks(huge_ping(1, LONG + rb"\ud800") + b"\n"):
            front.receive(chunk)

        turns = 0
        while not host.frames:
            turns += 1
            await asyncio.sleep(0)

        assert turns >= 4  # joined, mended, read, handled


async def test_huge_messages_of_several_hosts_take_one_step_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, turns = 0, list[int]()
    read_on = StdioFront._read_on  # pyright: ignore[reportPrivateUsage]

    def note(front: StdioFront, steps: Iterator[None]) -> None:
        turns.append(turn)
        read_on(front, steps)

    monkeypatch.setattr(StdioFront, "_read_on", note)
    async with stdio() as (one, host), stdio() as (other, second):
        for chunk in chunks(huge_ping(1) + b"\n"):
            one.receive(chunk)
            other.receive(chunk)
        while not (host.frames and second.frames):
            await asyncio.sleep(0)
            turn += 1

    assert len(set(turns)) == len(turns) >= 6


async def test_what_waits_behind_a_huge_message_is_bounded_and_taken_in_parts() -> None:
    read, write = os.pipe()
    lines = b"".join(ping(n) + b"\n" for n in range(8_000))
    ended = asyncio.Event()
    async with stdio() as (front, host):
        front.listen(read, ended.set)
        writing = asyncio.ensure_future(
            asyncio.to_thread(_write, write, huge_ping(-1) + b"\n" + lines)
        )
        most = waiting = 0
        while not ended.is_set():
            await asyncio.sleep(0)
            waiting = sum(map(len, front._behind or ()))  # pyright: ignore[reportPrivateUsage]
            most = max(most, waiting)
        await front.all_read()
        await writing

        assert 0 < most <= PIPE_BYTES
        assert [message["id"] for message in host.messages] == [-1, *range(8_000)]


def _write(fd: int, data: bytes) -> None:
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(data)


async def test_others_have_turns_while_what_has_waited_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, turns = 0, list[int]()

    def take(message: object) -> None:
        turns.append(turn)
        time.sleep(STEP)  # as long as a step may take

    async with stdio() as (front, _):
        monkeypatch.setattr(front, "_take", take)
        for chunk in chunks(huge_ping(0) + b"\n"):
            front.receive(chunk)
        for number in range(1, 5):
            front.receive(ping(number) + b"\n")
        while len(turns) < 5:
            await asyncio.sleep(0)
            turn += 1

        assert len(set(turns)) == 5


async def test_nothing_more_is_handled_once_it_is_closed() -> None:
    async with stdio() as (front, host):
        for chunk in chunks(huge_ping(1) + b"\n" + ping(2) + b"\n"):
            front.receive(chunk)
        front.close()
        await front.all_read()

        assert host.frames == []


async def test_a_message_that_fails_inside_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with stdio() as (front, host):

        def fail(message: object) -> None:
            monkeypatch.undo()
            raise LookupError("a fault")

        monkeypatch.setattr(front, "_take", fail)
        for chunk in chunks(huge_ping(1) + b"\n" + ping(2) + b"\n"):
            front.receive(chunk)
        await front.all_read()

        assert [message["id"] for message in host.messages] == [2]
        assert "a host's message failed" in caplog.text


# The command itself


def command_ping(id: int, more: bytes = b"") -> bytes:
    """One that is huge for a command."""
    return huge_ping(id, LONG_FOR_COMMANDS + more)


def terminated(host: PipeHost) -> None:
    host.wait_until_read()
    host.signal(signal.SIGTERM)


@pytest.mark.usefixtures("forked_commands")
def test_a_huge_request_before_the_end_of_input_is_answered(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry()}), "--attach", "never") as host:
        host.initialize()
        host.write(command_ping(77) + b"\n" + command_ping(78) + b"\n" + ping(79) + b"\n")
        host.close()

        assert [message["id"] for message in host.rest()] == [77, 78, 79]
        assert host.ended() == 0


def test_a_huge_request_at_the_end_of_a_file_is_answered(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    params: dict[str, Any] = {"protocolVersion": BATCHES, "capabilities": {}}
    first = rpc("initialize", params, 1)
    (tmp_path / "input").write_bytes(b"%b\n%b\n%b\n" % (first, command_ping(2), ping(3)))
    argv = [*COMMAND, "serve", "--config", str(config), "--attach", "never"]
    with (tmp_path / "input").open("rb") as stdin:
        done = subprocess.run(
            argv, stdin=stdin, capture_output=True, env=environ(), timeout=PATIENCE, check=False
        )

    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2, 3]
    assert done.returncode == 0


@pytest.mark.usefixtures("forked_commands")
def test_a_huge_request_before_a_signal_is_answered(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry()}), "--attach", "never") as host:
        host.initialize()
        host.write(command_ping(77, rb"\ud800") + b"\n")
        terminated(host)

        assert [(message["id"], message["result"]) for message in host.rest()] == [(77, {})]
        assert host.ended() == 0


@pytest.mark.parametrize("end", [PipeHost.close, terminated])
@pytest.mark.usefixtures("forked_commands")
def test_a_huge_request_of_a_joined_host_is_answered_in_order_and_at_its_end(
    tmp_path: Path, end: Callable[[PipeHost], None]
) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench, bench.host() as host:
        host.initialize()
        host.write(command_ping(77) + b"\n" + ping(78) + b"\n")
        assert [host.receive() for _ in range(2)] == [
            {"jsonrpc": "2.0", "id": id, "result": {}} for id in (77, 78)
        ]

        host.write(command_ping(79) + b"\n" + command_ping(80) + b"\n")
        end(host)

        assert [message["id"] for message in host.rest()] == [79, 80]
        assert host.ended() == 0


@pytest.mark.usefixtures("forked_commands")
def test_a_cancellation_right_behind_a_huge_call_cancels_it(tmp_path: Path) -> None:
    gate, reached = tmp_path / "gate", tmp_path / "reached"
    os.mkfifo(gate)
    arguments = {"gate": str(gate), "reached": str(reached), "more": LONG_FOR_COMMANDS.decode()}
    with PipeHost(config_file(tmp_path, {"a": entry()}), "--attach", "never") as host:
        host.initialize()
        host.open()
        call = rpc("tools/call", use_tool("a", "wait_at", arguments), 77)
        told = rpc("notifications/cancelled", {"requestId": 77})
        host.write(b"%b\n%b\n%b\n" % (call, told, ping(78)))

        assert host.answer(78)["result"] == {}
        host.close()
        assert host.rest() == []
        assert host.ended() == 0


# Joined hosts


class Plain:
    """As much of a session as the lines here need, and a channel for what is said of them."""

    era = SimpleNamespace(revision="2025-06-18", modern=False)
    backlog = 0

    def __init__(self) -> None:
        self.under_way: dict[bytes, object] = {}
        self.taken: list[bytes] = []

    def receive(self, message: Any) -> None:
        self.taken.append(bytes(message.id))

    def send(self, frame: bytes, about: bytes = b"") -> None:
        self.taken.append(frame)


class Joined:
    """A joined host, whose bytes pass through its journal."""

    def __init__(self) -> None:
        self.fd = create_journal("/tmp")
        self.journal = open_journal(self.fd)
        self.session: Any = Plain()
        self.front = JoinedFront(
            self.session, self.session, 4 * HUGE, self.journal, lambda *fields: None
        )

    def read(self, data: bytes, part: int = 0) -> None:
        """Bytes that are read at once, and received in one or two parts."""
        self.journal.chunk[: len(data)] = data
        self.journal.read(len(data))
        for piece in (data[:part], data[part:]):
            if piece:
                self.front.receive(piece)

    @property
    def left(self) -> list[bytes]:
        return read_journal(self.fd).lines


@pytest.mark.parametrize("last", [1, 60])
async def test_the_journal_has_a_huge_request_and_what_is_behind_it_until_they_are_handled(
    last: int,
) -> None:
    joined = Joined()
    for chunk in chunks(huge_ping(1)[:-10]):
        joined.read(chunk)
    end = huge_ping(1)[-10:]

    chunk = b"%b\n%b\n%b\n%b" % (end, ping(2), ping(3), ping(4)[:5])
    joined.read(chunk, len(chunk) - last)

    assert [line[-1:] for line in joined.left] == [b"}", b"}", b"}"]
    assert CUT in joined.left[0]  # which is refused
    assert joined.left[1:] == [ping(2), ping(3)]
    assert joined.session.taken == []
    await joined.front.all_read()
    assert joined.session.taken == [b"1", b"2", b"3"]
    assert joined.left == []
    contents = read_journal(joined.fd)
    assert contents.rest == ping(4)[:5]
    assert list(contents.under_way) == [b"1", b"2", b"3"]
    joined.read(ping(4)[5:] + b"\n")
    assert joined.session.taken[-1] == b"4"
    os.close(joined.fd)


async def test_a_huge_request_of_a_joined_host_after_we_began_to_close_stays_in_the_journal() -> (
    None
):
    joined = Joined()
    joined.front.is_closing = True
    for chunk in chunks(huge_ping(1)):
        joined.read(chunk)

    joined.read(b"\n%b\n" % ping(2))
    await joined.front.all_read()

    assert joined.front.is_stopped
    assert joined.session.taken == []
    assert len(joined.left) == 2
    assert joined.left[1] == ping(2)
    os.close(joined.fd)


# Over HTTP


BODIES: dict[str, tuple[bytes, int]] = {
    "a request": (huge_ping(1), 200),
    "half a character": (huge_ping(1, LONG + rb"\ud800"), 200),
    "line breaks": (huge_ping(1).replace(b",", b"\r\n,\n"), 200),
    "params that are no object": (ping(1, b',"params":"%b"' % LONG), 200),
    "a notification": (FIRST["a notification"][0], 202),
    "a broken request": (huge_ping(1)[:-1], 400),
    "no UTF-8": (huge_ping(1, LONG + b"\xff"), 400),
    "a batch": (b"[%b]" % huge_ping(1), 400),  # which this revision does not allow
}


@pytest.mark.parametrize("name", BODIES)
async def test_requests_behind_a_huge_body_are_answered_after_it(name: str) -> None:
    body, status = BODIES[name]
    async with http_port(snapshot()) as port:
        session = await port.open()
        peer = await port.connect()

        peer.send(b"".join((session.request(body), *(session.request(ping(n)) for n in (2, 3)))))

        assert (await peer.answer()).status == status
        assert [(await peer.answer()).json["id"] for _ in range(2)] == [2, 3]
        assert port.server.held == 0
        assert port.server.under_way == 0


class Stepping:
    """Reads each huge body in ten steps, and notes in which turns of the loop; `/bad` fails at the second."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.handled: list[bytes] = []
        self.turn = 0
        self.at_step = asyncio.Event()

    def admit(self, request: HttpRequest) -> Reply | None:
        return None

    def still_admits(self, request: HttpRequest) -> bool:
        return False

    def read_ahead(self, request: HttpRequest) -> Iterator[None]:
        for number in range(10):
            if request.target == b"/bad" and number:
                raise LookupError("a fault")
            self.steps.append(self.turn)
            self.at_step.set()
            yield

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        self.handled.append(request.target)
        response.plain(Reply(200, request.target))

    def tick(self, now: float) -> None: ...

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1


@asynccontextmanager
async def stepping() -> AsyncGenerator[tuple[Stepping, HttpServer, Peer]]:
    front = Stepping()
    counting = asyncio.ensure_future(front.count_turns())
    try:
        async with (
            asyncio.timeout(PATIENCE),
            listening(front, "127.0.0.1", 0, 4 * HUGE) as server,
        ):
            port = Port(server.port)
            yield front, server, await port.connect()
            port.close()
    finally:
        counting.cancel()


def posted(target: str, body: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (
        target.encode(),
        len(body),
        body,
    )


async def test_each_step_of_a_huge_body_has_its_turn_whatever_is_behind_it() -> None:
    async with stepping() as (front, server, peer):
        peer.send(posted("/huge", LONG) + b"".join(posted(f"/{n}") for n in range(20)))

        answers = [(await peer.answer()).body for _ in range(21)]

        assert answers == [b"/huge", *(b"/%d" % n for n in range(20))]
        assert len(set(front.steps)) == len(front.steps) == 10
        assert (server.held, server.under_way) == (0, 0)


async def test_huge_bodies_of_several_connections_take_one_step_in_each_turn() -> None:
    async with stepping() as (front, server, peer):
        others = Port(server.port)
        peers = [peer, await others.connect(), await others.connect()]
        for one in peers:
            one.send(posted("/huge", LONG))

        assert [(await one.answer()).body for one in peers] == 3 * [b"/huge"]
        assert len(set(front.steps)) == len(front.steps) == 30
        others.close()


async def test_a_body_whose_sender_has_gone_is_not_handled() -> None:
    async with stepping() as (front, server, peer):
        peer.send(posted("/huge", LONG) + posted("/other"))
        await front.at_step.wait()
        peer.close()
        await until(lambda: not server.connections)
        await asyncio.sleep(0)

        assert front.handled == []
        assert len(front.steps) < 10
        assert (server.held, server.under_way) == (0, 0)


async def test_a_huge_body_that_has_arrived_is_answered_although_the_port_closes() -> None:
    async with stepping() as (front, server, peer):
        peer.send(posted("/huge", LONG) + posted("/other"))
        await front.at_step.wait()
        server.stop()

        assert [(await peer.answer()).body for _ in range(2)] == [b"/huge", b"/other"]
        assert await peer.ended()


async def test_a_body_that_fails_to_be_read_costs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with stepping() as (_, _, peer):
        peer.send(posted("/bad", LONG) + posted("/other"))

        assert [(await peer.answer()).status for _ in range(2)] == [500, 200]
        assert "POST failed" in caplog.text


async def test_a_huge_modern_call_that_is_still_read_when_the_port_closes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with http_port() as port:
        read_ahead = port.front.read_ahead

        def stop_and_read(request: HttpRequest) -> Iterator[None]:
            port.front.stop()
            return read_ahead(request)

        monkeypatch.setattr(port.front, "read_ahead", stop_and_read)
        peer = await port.connect()
        peer.send(port.modern_use("echo", {"text": LONG.decode()}))

        answer = await peer.answer()

        assert answer.status == 503
        assert not port.front.busy


async def test_nobody_is_asked_for_a_body_before_a_huge_one_ahead_of_it_is_answered() -> None:
    async with stepping() as (front, _, peer):
        second = posted("/second", b"ab").replace(b"Host", b"Expect: 100-continue\r\nHost")
        peer.send(posted("/huge", LONG) + second[:-2])
        await front.at_step.wait()

        assert (await peer.head())[0] == 200
        assert await peer.reader.readexactly(len(b"/huge")) == b"/huge"
        peer.send(second[-2:])
        assert (await peer.answer()).body == b"/second"


async def test_a_head_that_begins_behind_a_huge_body_does_not_limit_the_time_of_its_answer() -> (
    None
):
    async with stepping() as (front, server, peer):
        peer.send(posted("/huge", LONG) + posted("/second")[:9])
        await front.at_step.wait()
        (connection,) = server.connections
        connection.tick(server.now + 2 * HEAD_TIME)

        assert (await peer.answer()).body == b"/huge"
        peer.send(posted("/second")[9:])
        assert (await peer.answer()).body == b"/second"
