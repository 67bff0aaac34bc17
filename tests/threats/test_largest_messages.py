"""A message of the largest size is read in few passes, and what can be done while it arrives is done then.

Each is measured in passes: the CPU time in which the codec alone reads the same bytes, and they are copied.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec
from mcp_workbench.server import parse
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.http.messages import HttpRequest
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.conversation import Conversation, Failure, ResponseHandler
from tests.kit.clock import until
from tests.kit.config import snapshot
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.threats import worst
from tests.threats.growth import cost, peak, steps_of

pytestmark = pytest.mark.cost

PATIENCE = 120.0
SIZE = 12 << 20  # bytes
RUNS = 3  # of which the quickest counts; one that is quick enough is the last
CHUNK = 64 << 10  # bytes that arrive at once
TOOL = b'{"toolbox":"dev","server":"a","tool":"t"}'


RESULT = b'"result":{"content":[],"a":'  # of a call


def filled(start: bytes, part: bytes, end: bytes) -> bytes:
    return worst.filled(start, part, end, SIZE)


# Their depth takes longer to determine than they take to read.
FILLINGS = {
    "short lists": filled(b"[", b'"a",[],', b"1]"),
    "half a character": filled(b"[", b'"a",[],', rb'"\ud800"]'),
    "numbers": filled(b"[", b"1 ,", b"1]"),
    "escapes and half a character": filled(b'"', rb"\n", rb'\ud800"'),
}


def request(method: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"%b","params":{%b}}' % (method, params)


def use_tool(arguments: bytes) -> bytes:
    return request(b"tools/call", b'"name":"use_tool","arguments":{%b}' % arguments)


MESSAGES: dict[str, Callable[[bytes], bytes]] = {
    "an unknown argument": lambda x: use_tool(b'"tool":%b,"x":%b' % (TOOL, x)),
    "an unknown argument at the end": (
        lambda x: use_tool(b'"tool":%b,"arguments":{"a":%b},"x":1' % (TOOL, x))
    ),
    "an unknown member": (
        lambda x: request(b"tools/call", b'"name":"open_toolbox","arguments":{},"x":%b' % x)
    ),
    "an unknown member at the end": (
        lambda x: request(
            b"tools/call",
            b'"name":"use_tool","arguments":{"tool":%b,"arguments":{"a":%b}},"x":1' % (TOOL, x),
        )
    ),
    "a toolbox": (
        lambda x: request(
            b"tools/call",
            b'"name":"open_toolbox","arguments":{"toolbox_name":"dev","x":%b}' % x,
        )
    ),
    "a prompt": lambda x: request(b"prompts/get", b'"name":"p","arguments":{"a":%b}' % x),
    "params that are no object": (
        lambda x: b'{"jsonrpc":"2.0","id":1,"method":"a/b","params":%b}' % x
    ),
}


def chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


def one_pass(filling: str, line: bytes) -> float:
    """How long a pass takes; a text that has to be mended is read twice."""
    whole = line.replace(rb"\ud800", rb"\u2014")
    read = msgspec.json.Decoder(msgspec.Raw).decode
    copying = cost(lambda: bytes(memoryview(whole)))
    return copying + cost(lambda: read(whole)) * (2 if "half a character" in filling else 1)


async def longest_step_of_host(line: bytes, enough: float) -> float:
    """The longest step in which a host's message is joined, read, answered or sent on."""
    best = float("inf")
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(snapshot()) as workbench,
        task_scope() as requests,
    ):
        for _ in range(RUNS):
            host = MemoryHost()
            session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
            session.era.revision = "2025-06-18"
            front = StdioFront(session, host, 2 * SIZE)

            async def arrives(front: StdioFront = front, host: MemoryHost = host) -> None:
                for chunk in chunks(line):
                    front.receive(chunk)
                    await asyncio.sleep(0)
                front.receive(b"\n")
                await host.more.wait()

            best = min(best, (await steps_of(arrives()))[1])
            assert [message["id"] for message in host.messages] == [1]
            session.close()
            if best <= enough:
                break
    return best


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_host_s_message_takes_steps_of_few_passes(name: str, filling: str) -> None:
    line = MESSAGES[name](FILLINGS[filling])

    most = 2 * one_pass(filling, line)

    assert asyncio.run(longest_step_of_host(line, most)) <= most


async def longest_step_of_body(line: bytes, enough: float) -> float:
    """The longest step in which a body is joined and read."""
    best = float("inf")
    for _ in range(RUNS):
        arriving = HttpRequest()
        for chunk in chunks(line):
            arriving.add_chunk(chunk)
        arriving.close_body()

        async def read(arriving: HttpRequest = arriving) -> None:
            assert arriving.steps is not None
            for _ in arriving.steps:
                await asyncio.sleep(0)
            reading = parse.read_body_in_steps(arriving.body)
            with suppress(StopIteration):
                while True:
                    await asyncio.sleep(0)
                    next(reading)

        best = min(best, (await steps_of(read()))[1])
        assert arriving.body == line.replace(rb"\ud800", rb"\ufffd")
        if best <= enough:
            break
    return best


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("name", MESSAGES)
def test_a_body_takes_steps_of_few_passes(name: str, filling: str) -> None:
    line = MESSAGES[name](FILLINGS[filling])

    most = 2 * one_pass(filling, line)

    assert asyncio.run(longest_step_of_body(line, most)) <= most


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("name", ["an unknown argument at the end", "params that are no object"])
def test_a_host_s_message_takes_at_most_four_times_its_size(name: str, filling: str) -> None:
    line = MESSAGES[name](FILLINGS[filling])

    def arrives() -> None:
        asyncio.run(longest_step_of_host(line, float("inf")))

    assert peak(arrives) <= 4 * SIZE


class Settled(ResponseHandler):
    """Takes one response."""

    def __init__(self) -> None:
        self.outcome: jsonrpc.Outcome | Failure | None = None

    def settled(self, answer: jsonrpc.Outcome) -> None:
        self.outcome = answer

    def lost(self, failure: Failure, /) -> None:
        self.outcome = failure

    def progressed(self, params: msgspec.Raw) -> None: ...


async def longest_step_of_server(line: bytes, enough: float) -> float:
    best = float("inf")
    for _ in range(RUNS):
        conversation, handler = Conversation(2 * SIZE, lambda _: None), Settled()
        assert conversation.begin("tools/call", b"{}", handler) == 1

        async def arrives(talk: Conversation = conversation, handler: Settled = handler) -> None:
            for chunk in chunks(line + b"\n"):
                talk.receive(chunk)
                await asyncio.sleep(0)
            await until(lambda: handler.outcome is not None)

        best = min(best, (await steps_of(arrives()))[1])
        assert isinstance(handler.outcome, jsonrpc.Outcome)
        if best <= enough:
            break
    return best


@pytest.mark.parametrize("filling", FILLINGS)
def test_a_server_s_answer_is_read_in_few_passes(filling: str) -> None:
    line = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"a":%b}}' % FILLINGS[filling]

    most = 2 * one_pass(filling, line)

    assert asyncio.run(longest_step_of_server(line, most)) <= most


@contextmanager
def http_server(answer: bytes, kind: str) -> Generator[str]:
    """A server in a thread of its own, which answers the call of a tool with these bytes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            made: dict[str, Any] = {
                "initialize": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "a", "version": "1"},
                },
                "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
            }
            if asked["method"] == "tools/call":
                self._send(200, answer % asked["id"], kind)
            elif asked["method"] in made:
                result = {"jsonrpc": "2.0", "id": asked["id"], "result": made[asked["method"]]}
                self._send(200, json.dumps(result).encode(), "application/json")
            else:
                self._send(202, b"", "application/json")

        def do_GET(self) -> None:
            self._send(405, b"", "text/plain")

        do_DELETE = do_GET  # noqa: N815 - the names that the library calls

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            server.shutdown()
            thread.join()


async def longest_step_of_call(url: str, enough: float, gets: bytes = RESULT) -> float:
    spec = ServerSpec(ServerAddress("dev", "a"), HttpEndpoint(url), era="legacy")
    best = float("inf")
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(snapshot(spec)) as workbench,
        task_scope() as requests,
    ):
        await workbench.view.open("dev")
        for _ in range(RUNS):
            host = MemoryHost()
            session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
            session.era.revision = "2025-06-18"

            async def called(session: HostSession = session, host: MemoryHost = host) -> None:
                session.receive(parse.read(use_tool(b'"tool":%b' % TOOL)))
                await host.more.wait()

            best = min(best, (await steps_of(called()))[1])
            assert gets in host.frames[0][:400]
            session.close()
            if best <= enough:
                break
    return best


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_an_answer_over_http_is_read_in_few_passes(kind: str, filling: str) -> None:
    start, end = (b"data: ", b"\n\n") if kind == "text/event-stream" else (b"", b"")
    line = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"a":%b}}' % FILLINGS[filling]
    answer = start + line.replace(b'"id":1', b'"id":%d') + end

    most = 3 * one_pass(filling, line)

    with http_server(answer, kind) as url:
        assert asyncio.run(longest_step_of_call(url, most)) <= most


def test_an_event_that_is_refused_is_not_read_again() -> None:
    deep = b"[%b,%b%b]" % (FILLINGS["short lists"], b"[" * 1100, b"]" * 1100)
    line = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"a":%b}}' % deep
    answer = b"data: %b\n\n" % line.replace(b'"id":1', b'"id":%d')

    most = 1.5 * one_pass("short lists", line)

    with http_server(answer, "text/event-stream") as url:
        assert asyncio.run(longest_step_of_call(url, most, b"nested")) <= most


# What is read that way is the same


def test_a_text_that_arrives_in_parts_is_as_deep_as_a_whole_one() -> None:
    for levels in (json_text.DEPTH, json_text.DEPTH + 1):
        around = b"[" * (levels - 1), b"]" * (levels - 1)
        line = filled(b"[" + around[0], b'"\\"[",', b"1" + around[1] + b"]")
        framer = json_text.LineFramer(2 * SIZE)

        lines = [line for chunk in chunks(line + b"\n") for line in framer.feed(chunk)]

        assert lines == [line]
        assert isinstance(lines[0], json_text.ScannedText)
        assert json_text.too_deep(lines[0]) == json_text.too_deep(line)


def test_a_long_line_takes_twice_its_size_while_it_is_joined() -> None:
    parts = list(chunks(FILLINGS["numbers"]))

    def arrives() -> None:
        framer = json_text.LineFramer(2 * SIZE)
        for part in parts:
            framer.feed(part)
        assert framer.feed(b"\n")

    assert peak(arrives) <= 2 * SIZE + (2 << 20)
