"""A huge message takes steps of its own: what follows it waits, nothing is lost, and a host that reads gets it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.transport.http import messages
from mcp_workbench.transport.json_text import HUGE
from mcp_workbench.transport.jsonrpc import NEVER, Envelope, Outcome
from mcp_workbench.transport.long_steps import add_long_step
from mcp_workbench.transport.stdio import PIPE_BYTES, STEP, PipeReader
from mcp_workbench.upstream.conversation import Conversation, Failure, ResponseHandler
from tests.kit.clock import PATIENCE, until
from tests.kit.config import snapshot, tool
from tests.kit.http_host import port, rpc
from tests.kit.inside import InsideWorkbench
from tests.steps.server_messages import CALL

pytestmark = pytest.mark.cost

PROGRAM = str(Path(__file__).parents[1] / "steps" / "large_server.py")
CHUNK = 64 << 10
LIMIT = 2 * HUGE
LONG = b'"' + b"a" * (HUGE + 1000) + b'"'
NOTICE_BYTES = 3 * messages.BACKLOG_BYTES
TOLD = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":%b}}\n'
HUGE_NOTICE = TOLD % b'"%b"' % (b"a" * NOTICE_BYTES)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Here the loop is the subject."""
    return "asyncio", {"use_uvloop": request.param}


class Order:
    """What was delivered, in order."""

    def __init__(self) -> None:
        self.delivered: list[str] = []

    def heard(self, message: Envelope) -> None:
        self.delivered.append(message.method)

    def waiter(self, name: str) -> ResponseHandler:
        delivered = self.delivered

        class Waiter(ResponseHandler):
            def settled(self, answer: Outcome) -> None:
                delivered.append(name)

            def lost(self, failure: Failure, /) -> None:
                delivered.append(f"{name} {failure.code}")

            def progressed(self, params: msgspec.Raw) -> None: ...

        return Waiter()


def answer(number: int, result: bytes = b"{}") -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (number, result)


def chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


AFTERWARDS = answer(2) + b'\n{"jsonrpc":"2.0","method":"notifications/x"}\n' + answer(3) + b"\n"
AFTER = ["second", "notifications/x", "third"]
FIRST: dict[str, tuple[bytes, list[str]]] = {
    "a response": (answer(1, LONG), ["first"]),
    "a batch": (b"[%b,%b]" % (answer(7), answer(1, LONG)), ["first"]),
    "a broken response": (b'{"jsonrpc":"2.0","id":1,"result":[%b}' % LONG, ["first protocol_error"]),
    "a log message": (TOLD.strip() % LONG, ["notifications/message"]),
    "no message": (b"x" * (HUGE + 1), []),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
async def test_what_follows_a_huge_message_is_delivered_after_it(name: str) -> None:
    line, expected = FIRST[name]
    order = Order()
    conversation = Conversation(LIMIT, order.heard)
    for waiting in ("first", "second", "third"):
        conversation.pending.add(order.waiter(waiting), NEVER)

    for chunk in chunks(line + b"\n" + AFTERWARDS):
        conversation.receive(chunk)

    await until(lambda: len(order.delivered) >= len(expected + AFTER))
    assert order.delivered == expected + AFTER


async def test_a_line_that_is_too_long_right_after_a_huge_message_fails_only_what_waits() -> None:
    order = Order()
    conversation = Conversation(LIMIT, lambda _: None)
    for waiting in ("first", "second"):
        conversation.pending.add(order.waiter(waiting), NEVER)

    conversation.receive(answer(1, LONG) + b"\n" + b"x" * (LIMIT + 1))

    assert order.delivered == ["first", "second too_large"]


LEAVES = """
import json, sys
for line in sys.stdin.buffer:
    asked = json.loads(line)
    if asked.get("method") == "tools/call":
        size = asked["params"]["arguments"]["size"]
        result = {"content": [{"type": "text", "text": "a" * size}]}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\\n")
        sys.stdout.flush()
        break
    made = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "a", "version": "1"}},
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
    }
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": made.get(asked["method"], {})}
        print(json.dumps(answer), flush=True)
"""


@pytest.mark.parametrize("size", [10, HUGE + 1, 3 * HUGE])
async def test_the_answer_of_a_server_that_exits_right_after_it_arrives(
    tmp_path: Path, size: int
) -> None:
    program = tmp_path / "leaves.py"
    program.write_text(LEAVES, "utf-8")
    command = StdioCommand(sys.executable, ("-E", "-S", str(program)))
    spec = ServerSpec(ServerAddress("dev", "a"), command, era="legacy")

    async with asyncio.timeout(PATIENCE), InsideWorkbench(snapshot(spec)) as workbench:
        result = await workbench.use_tool(tool("a", "t"), {"size": size})

    assert [len(part["text"]) for part in result["content"]] == [size]


# Many at the same time


class BusyTurns:
    """Others whose long steps come first, as those of many peers with huge messages do."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.is_over = False
        self.turns = 0
        for _ in range(count):
            add_long_step(self._take)

    def _take(self) -> None:
        time.sleep(STEP / 4)
        self.turns += 1
        if not self.is_over:
            add_long_step(self._take)


async def test_what_has_waited_behind_a_huge_message_is_taken_in_parts() -> None:
    turn, turns = 0, list[int]()

    def heard(message: Envelope) -> None:
        turns.append(turn)
        time.sleep(STEP)  # as long as a step may take

    conversation = Conversation(LIMIT, heard)
    lines = b'{"jsonrpc":"2.0","method":"notifications/x"}\n' * 5
    for chunk in chunks(TOLD % LONG + lines):
        conversation.receive(chunk)
    async with asyncio.timeout(PATIENCE):
        while len(turns) < 6:
            await asyncio.sleep(0)
            turn += 1

    assert len(set(turns)) == 6


FLOODS = LEAVES.replace(
    "        break\n",
    "        sys.stdout.write('1\\n' * (asked['params']['arguments']['lines']))\n",
)


async def test_little_is_read_of_what_a_server_writes_behind_a_huge_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "floods.py").write_text(FLOODS, "utf-8")
    command = StdioCommand(sys.executable, ("-E", "-S", str(tmp_path / "floods.py")))
    spec = ServerSpec(ServerAddress("dev", "a"), command, era="legacy")
    size, lines = HUGE + 1, 4 << 20
    taken = 0

    def read(fd: int, most: int) -> bytes:
        nonlocal taken
        data = os.read(fd, most)
        taken += len(data)
        return data

    monkeypatch.setattr(PipeReader, "read", staticmethod(read))
    async with asyncio.timeout(PATIENCE), InsideWorkbench(snapshot(spec)) as workbench:
        await workbench.use_tool(tool("a", "t"), {"size": 10, "lines": 0})
        taken = 0
        ended = asyncio.ensure_future(
            workbench.use_tool(tool("a", "t"), {"size": size, "lines": lines})
        )
        others = BusyTurns(50)
        await ended
        others.is_over = True

    assert others.turns > 50
    assert taken <= size + 8 * PIPE_BYTES  # of 32 times as much that is written


async def test_huge_answers_of_servers_that_exit_arrive_whoever_else_has_turns_before(
    tmp_path: Path,
) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES, "utf-8")
    command = StdioCommand(sys.executable, ("-E", "-S", str(tmp_path / "leaves.py")))
    names = ("a", "b", "c")
    specs = [ServerSpec(ServerAddress("dev", name), command, era="legacy") for name in names]

    async with asyncio.timeout(PATIENCE), InsideWorkbench(snapshot(*specs)) as workbench:
        await workbench.view.open("dev")
        others = BusyTurns(50)
        asked = [workbench.use_tool(tool(name, "t"), {"size": HUGE + 1}) for name in names]
        results = await asyncio.gather(*asked, return_exceptions=True)
        others.is_over = True

    assert [_sizes(result) for result in results] == [[HUGE + 1]] * 3


def _sizes(result: Any) -> Any:
    return result if isinstance(result, Exception) else [len(p["text"]) for p in result["content"]]


# Hosts over HTTP


def told(folder: Path, notices: bytes) -> ServerSpec:
    """A server that sends these notifications before its answer to a call."""
    (folder / "told").write_bytes(notices)
    command = StdioCommand(sys.executable, ("-E", "-S", PROGRAM, str(folder)))
    return ServerSpec(ServerAddress("dev", "a"), command, era="legacy")


@pytest.mark.parametrize("count", [1, 2])
async def test_a_host_that_reads_gets_messages_larger_than_the_backlog_and_the_answer(
    tmp_path: Path, count: int
) -> None:
    async with port(snapshot(told(tmp_path, HUGE_NOTICE * count))) as opened:
        session = await opened.open()

        response = await session.post(rpc(*CALL, id=5))

        received = response.messages
        sizes = [len(one["params"]["data"]) for one in received if "method" in one]
        assert sizes == [NOTICE_BYTES] * count
        assert [one["result"] for one in received if one.get("id") == 5] == [{"content": []}]


async def test_a_host_that_does_not_read_is_disconnected_after_a_few_of_them(
    tmp_path: Path,
) -> None:
    async with port(snapshot(told(tmp_path, HUGE_NOTICE * 6))) as opened:
        session = await opened.open()
        with socket.create_connection(("127.0.0.1", opened.number)) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            before = opened.server.connections.copy()
            peer.sendall(session.request(rpc(*CALL, id=5)))
            most = 0

            def is_cut_off() -> bool:
                nonlocal most
                new = [one for one in opened.server.connections if one not in before or one.backlog]
                most = max([most, *(one.backlog for one in new)])
                return most > 0 and all(one.backlog == 0 for one in new)

            await until(is_cut_off)

        assert len(HUGE_NOTICE) < most < messages.BACKLOG_BYTES + 3 * len(HUGE_NOTICE)
