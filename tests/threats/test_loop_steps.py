"""What takes long is done in parts, and what is read is read quickly: nobody else waits for it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench import __version__
from mcp_workbench.config.load import load_config
from mcp_workbench.core.raw_json import read_elements
from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand, ToolMode
from mcp_workbench.daemon import control
from mcp_workbench.daemon.control import ControlConnection
from mcp_workbench.daemon.joined_hosts import LONGEST_FIELD, HostRegistry
from mcp_workbench.daemon.lifecycle import BoundedLog
from mcp_workbench.daemon.status import DaemonInfo
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.text import LONG, collect, joined, quoted
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream import tool_list as listing
from tests.kit.config import snapshot
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.threats import worst
from tests.threats.growth import cost, peak, ratio, steps_of

PATIENCE = 120.0
LISTING = str(Path(__file__).with_name("listing_server.py"))
MESSAGE = 8 << 20  # bytes
SPARE = 1 << 20
PARTS = 4  # in which a long work is done at least


# Messages


def read(line: bytes) -> jsonrpc.Envelope | jsonrpc.Malformed:
    try:
        return jsonrpc.decode_text(line)
    except jsonrpc.Malformed as error:
        return error


@pytest.mark.cost
@pytest.mark.parametrize("name", ["brackets", "objects and lists", "brackets near the limit"])
def test_how_deep_a_message_is_costs_little_more_than_to_read_it(name: str) -> None:
    line = worst.messages(MESSAGE)[name]
    reading = cost(lambda: msgspec.json.decode(line, type=jsonrpc.Envelope))

    assert cost(lambda: json_text.too_deep(line)) <= 5 * reading


@pytest.mark.cost
@pytest.mark.parametrize(
    "name", ["escapes, broken at the end", "backslashes", "words that look like an escape"]
)
def test_a_broken_message_costs_little_more_than_a_whole_one(name: str) -> None:
    line = worst.messages(MESSAGE)[name]
    whole = worst.filled(b'{"method":"m","params":"', rb"\n", b'"}', MESSAGE)
    assert isinstance(read(line), jsonrpc.Malformed)
    assert isinstance(read(whole), jsonrpc.Envelope)

    assert ratio(lambda: read(line), lambda: read(whole), 3) <= 3


@pytest.mark.cost
@pytest.mark.parametrize("letter", ["\N{GRINNING FACE}", "\N{EURO SIGN}", "\xe9", "a"])
def test_a_method_as_long_as_a_message_is_refused_unread(letter: str) -> None:
    line = worst.filled(b'{"id":7,"method":"', letter.encode(), b'"}', MESSAGE)

    refused = read(line)

    assert isinstance(refused, jsonrpc.Malformed)
    assert (refused.code, refused.id) == (jsonrpc.INVALID_REQUEST, b"7")
    assert "the name of its method is too long" in str(refused)
    assert peak(lambda: read(line)) <= SPARE


def test_a_large_message_is_read_like_a_small_one() -> None:
    spare = b" " * jsonrpc.LARGE
    for text in (
        rb'{"id":"a","method":"\u0062","params":{"c":1}}',
        b'{"id":3,"result":{}}',
        b'{"id":3,"error":{"code":1}}',
        b'{"method":3}',
        b'{"id":3,"method":"m","result":1}',
        b'{"id":4}',
        b"[]",
    ):
        small, large = read(text), read(text + spare)
        if isinstance(small, jsonrpc.Envelope):
            assert small == large
        else:
            assert isinstance(large, jsonrpc.Malformed)
            assert (small.code, small.id) == (large.code, large.id)


@pytest.mark.cost
@pytest.mark.parametrize("code", [b"-32000", b'"E_FAILED"'])
def test_an_error_as_long_as_a_message_is_not_read(code: bytes) -> None:
    start = b'{"code":%b,"message":"\xf0\x9f\x98\x80' % code
    error = msgspec.Raw(worst.filled(start, b"a", b'"}', MESSAGE))

    assert "error" in jsonrpc.read_error(error).message
    assert peak(lambda: jsonrpc.read_error(error)) <= SPARE


def test_a_large_error_is_read_like_a_small_one() -> None:
    spare = b" " * jsonrpc.LARGE
    for text in (
        b'{"code":-32042,"message":"m","data":{"a":1}}',
        b'{"code":1.5,"message":"m"}',
        b'{"code":"E","message":"m"}',
        b'{"code":null,"message":"m"}',
        b'{"message":"m"}',
        b'{"code":1}',
        b'{"code":1,"message":5}',
        b'"text"',
        b"[]",
    ):
        small, large = (jsonrpc.read_error(msgspec.Raw(raw)) for raw in (text, text + spare))
        assert small == large


def plain_depth(value: bytes) -> int:
    """The same by the simplest means."""
    steps = {"[": 1, "{": 1, "]": -1, "}": -1}
    outside, inside, escaped = "", False, False
    for sign in value.decode():
        if escaped:
            escaped = False
        elif inside and sign == "\\":
            escaped = True
        elif sign == '"':
            inside = not inside
        elif not inside and sign in steps:
            outside += sign
    return max(accumulate(steps[sign] for sign in outside), default=0)


@pytest.mark.parametrize("levels", [json_text.DEPTH, json_text.DEPTH + 1])
@pytest.mark.parametrize("shift", range(8))
def test_the_depth_is_right_wherever_a_text_is_cut(levels: int, shift: int) -> None:
    text = json.dumps('[{"\\' * 40_000).encode()
    value = b"[" + b" " * shift + text + b"," + b"[" * (levels - 1) + b"]" * (levels - 1) + b"]"
    assert len(value) > 3 << 16  # several pieces

    assert json_text.too_deep(value) is (levels > json_text.DEPTH)


def test_the_depth_of_any_value_is_right() -> None:
    choose = random.Random(3)

    def made(height: int) -> str:
        kind = choose.random()
        if not height or kind < 0.3:
            return json.dumps("".join(choose.choices('[]{}"\\a\n', k=6)))
        if kind < 0.7:
            around = choose.choice([1, 2, 100, 400])
            return "[" * around + ",".join(made(height - 1) for _ in range(2)) + "]" * around
        around = choose.choice([1, 100, 300])
        return '{"[":' * around + made(height - 1) + "}" * around

    deep = 0
    for _ in range(60):
        value = made(8).encode()
        if len(value) > 2 * json_text.DEPTH:
            is_deep = plain_depth(value) > json_text.DEPTH
            assert json_text.too_deep(value) is is_deep
            deep += is_deep
    assert deep


def test_a_message_that_is_long_near_the_limit_counts_as_too_deep() -> None:
    near = b"[" * 900
    little = near + b"[],[]" + b"]" * 900
    much = near + b"[]," * json_text.MOST_NEAR + b"[]" + b"]" * 900

    assert not json_text.too_deep(little)
    assert json_text.too_deep(much)


@pytest.mark.parametrize("before", range(40))
def test_half_a_character_is_found_wherever_it_stands(before: int) -> None:
    pairs = rb"\ud83d\ude00" * 5
    for half in (rb"\ud83d", rb"\uDE00", rb"\ud83d\\ud83d", rb"\ud83d\n"):
        body = b"a" * before + pairs + half + pairs + rb"\\ud83d" + half
        mended = half.replace(rb"\uDE00", rb"\ufffd").replace(rb"\ud83d", rb"\ufffd", 1)
        whole = b"a" * before + pairs + mended + pairs + rb"\\ud83d" + mended

        message = read(b'{"method":"m","params":{"a":"' + body + b'"}}')

        assert isinstance(message, jsonrpc.Envelope)
        assert json.loads(bytes(message.params)) == json.loads(b'{"a":"' + whole + b'"}')


def test_text_is_mended_alike_wherever_it_is_cut() -> None:
    letters = "\N{GRINNING FACE}\N{EURO SIGN}\xe9a".encode() * 20_000
    for shift in range(4):
        line = b"a" * shift + letters + b"\xf0\x9f\x98" + letters + b"\xff"

        assert json_text.mend_text(line) == line.decode("utf-8", "replace").encode()


# Lists


@pytest.mark.cost
def test_a_page_is_read_in_turns() -> None:
    tool = b"{%b}" % b",".join(b'"%d":[1]' % n for n in range(70))
    page = msgspec.Raw(b"[%b]" % b",".join([tool] * 20_000))

    whole, longest = asyncio.run(steps_of(listing.page_elements(page)))

    assert longest <= 0.8 * whole  # there are two readings
    assert asyncio.run(listing.page_elements(page)) == read_elements(page)


def test_large_entries_of_a_page_are_few_in_a_turn() -> None:
    raws = [msgspec.Raw(b"{" + b" " * (n % 7 << 14) + b"}") for n in range(1500)]

    turns = list(listing.in_steps(raws))

    assert [raw for turn in turns for raw in turn] == raws
    most = listing.AT_ONCE_BYTES + max(map(len, raws))
    assert all(sum(map(len, turn)) < most and len(turn) <= listing.AT_ONCE for turn in turns)


def server(**wishes: Any) -> ServerSpec:
    target = StdioCommand(sys.executable, (LISTING, json.dumps(wishes)))
    return ServerSpec(ServerAddress("dev", "many"), target, era="legacy")


async def steps_of_answer(
    mode: ToolMode, request: dict[str, Any], **wishes: Any
) -> tuple[float, float, Any]:
    """What a request costs once its server is there, and its result."""
    host = MemoryHost()
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(snapshot(server(**wishes), mode=mode)) as workbench,
        task_scope() as requests,
    ):
        await workbench.view.open("dev")
        session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ("dev",)))
        session.era.revision = "2025-06-18"

        async def asked() -> None:
            session.receive(jsonrpc.decode(json.dumps({"id": 1, **request}).encode()))
            await host.more.wait()

        whole, longest = await steps_of(asked())
        session.close()
    return whole, longest, json.loads(host.frames[0])["result"]


@pytest.mark.cost
def test_a_long_list_of_tools_is_made_in_turns() -> None:
    request = {"method": "tools/list"}
    work = steps_of_answer("dynamic", request, more_tools=9000, tool_bytes=500)
    whole, longest, result = asyncio.run(work)

    assert len(result["tools"]) == 9004
    assert longest <= whole / PARTS


@pytest.mark.cost
def test_long_definitions_are_told_in_turns() -> None:
    opening = {"name": "open_toolbox", "arguments": {"toolbox_name": "dev", "detail": "schema"}}
    request = {"method": "tools/call", "params": opening}
    work = steps_of_answer("proxy", request, more_tools=300, tool_bytes=64 << 10)
    whole, longest, result = asyncio.run(work)

    told = json.loads(result["content"][0]["text"])
    assert len(told["tools"]) == 302
    assert told["tools"][-1]["description"] == '"a" ' * (16 << 10)
    assert longest <= whole / 2  # at the end all of it is put together


@pytest.mark.cost
def test_one_long_text_is_quoted_in_turns() -> None:
    text = ('"\N{GRINNING FACE}\xe9\n' * 40_000).encode()

    assert json.loads(b'"%b"' % b"".join(quoted([text, b"", b"a"]))) == text.decode() + "a"
    assert peak(lambda: b"".join(quoted([text]))) <= 4 * len(text) + SPARE


@pytest.mark.cost
def test_who_makes_many_parts_lets_others_have_a_turn() -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(20):
            end = time.perf_counter() + 0.01
            while time.perf_counter() < end:
                pass
            yield b"a"

    async def scene() -> int:
        making, turns = asyncio.ensure_future(collect(parts())), 0
        while not making.done():
            await asyncio.sleep(0)
            turns += 1
        assert await making == [b"a"] * 20
        return turns

    assert asyncio.run(scene()) >= PARTS


@pytest.mark.parametrize("more", [0, 1])
def test_a_long_answer_is_put_together_in_a_turn_of_its_own(more: int) -> None:
    async def scene() -> int:
        joining, turns = asyncio.ensure_future(joined([b"a" * LONG, b"b" * more])), 0
        while not joining.done():
            await asyncio.sleep(0)
            turns += 1
        assert await joining == b"a" * LONG + b"b" * more
        return turns

    assert asyncio.run(scene()) == (3 if more else 1)


# Files


@pytest.mark.cost
@pytest.mark.parametrize(
    "made", [lambda: b"// a\n" * 200_000, lambda: b"/*" + b"*" * (1 << 20) + b"*/"]
)
def test_a_host_that_joins_does_not_hold_up_others(
    made: Callable[[], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "workbench-config.json"
    path.write_bytes(made() + b'{"mcpServers":{"a":{"command":"x"}}}' + b"// a\n" * 200_000)
    path.chmod(0o600)
    configuration = load_config(path)

    async def scene() -> tuple[float, float, bytes]:
        ours, theirs = socket.socketpair()
        book = BoundedLog(str(tmp_path / "log"))
        about = DaemonInfo(str(path), str(tmp_path / "log"), time.monotonic())
        async with (
            asyncio.timeout(PATIENCE),
            InsideWorkbench(configuration) as workbench,
            task_scope() as hosts,
        ):
            visitor = ControlConnection(
                ours, HostRegistry(about, workbench.gateway, hosts, book), os.getpid()
            )
            theirs.setblocking(False)
            theirs.send(
                control.pack(
                    control.FORMAT,
                    control.JOIN,
                    __version__.encode(),
                    bytes(path),
                    b"",
                    b"",
                )
            )
            answer = asyncio.get_running_loop().sock_recv(theirs, 1 << 10)
            steps = asyncio.ensure_future(answer)
            whole, longest = await steps_of(steps)
            visitor.close()
            theirs.close()
            book.close()
            return whole, longest, await steps

    _, longest, answer = asyncio.run(scene())

    assert control.WELCOME in answer
    assert longest <= cost(lambda: load_config(path)) / PARTS


@pytest.mark.cost
@pytest.mark.parametrize("at", range(4))
def test_a_request_to_join_with_a_long_field_is_refused(at: int, tmp_path: Path) -> None:
    fields = [__version__.encode(), b"workbench-config.json", b"", b""]
    fields[at] = b"dev," * (LONGEST_FIELD // 3)

    async def scene() -> bytes:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        book = BoundedLog(str(tmp_path / "log"))
        about = DaemonInfo("workbench-config.json", str(tmp_path / "log"), time.monotonic())
        async with (
            asyncio.timeout(PATIENCE),
            InsideWorkbench(snapshot()) as workbench,
            task_scope() as hosts,
        ):
            registry = HostRegistry(about, workbench.gateway, hosts, book)
            visitor = ControlConnection(ours, registry, os.getpid())
            theirs.send(control.pack(control.FORMAT, control.JOIN, *fields))
            answer = await asyncio.get_running_loop().sock_recv(theirs, 1 << 20)
            visitor.close()
            theirs.close()
            book.close()
            return answer

    answer = asyncio.run(scene())

    assert control.FrameReader().feed(answer) == [
        [control.REFUSED, control.LOUDLY, b"the request is too long"]
    ]
