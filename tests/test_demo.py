"""The demo servers, asked by the official SDK and by hand, in both eras."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from mcp_workbench.config.load import demo_snapshot

META = "io.modelcontextprotocol/"
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
ERAS = ["legacy", "2026-07-28", "auto"]

Json = dict[str, Any]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def client(server: str, mode: str) -> Client:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_workbench.demo", server]
    )
    return Client(stdio_client(command), mode=mode)


def words(result: Any) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("mode", ERAS)
async def test_basics_serves_the_official_client(mode: str) -> None:
    async with asyncio.timeout(20), client("basics", mode) as host:
        listed = await host.list_tools()
        assert [tool.name for tool in listed.tools] == ["echo", "add", "now", "fail"]
        assert all(tool.title and tool.description and tool.annotations for tool in listed.tools)
        assert all(tool.annotations.read_only_hint for tool in listed.tools if tool.annotations)

        assert words(await host.call_tool("echo", {"text": "Grüße 🙂"})) == "Grüße 🙂"
        assert words(await host.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert words(await host.call_tool("now", {"utc_offset": 5.5})).endswith("+05:30")
        failed = await host.call_tool("fail", {"reason": "no paper"})
        assert failed.is_error
        assert words(failed) == "no paper"


@pytest.mark.parametrize("mode", ERAS)
async def test_workshop_serves_the_official_client(mode: str) -> None:
    async with asyncio.timeout(20), client("workshop", mode) as host:
        assert host.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
        counted = await host.call_tool("word_count", {"text": "one two\nthree"})
        assert counted.structured_content == {"words": 3, "characters": 13, "lines": 2}
        rolled = await host.call_tool("roll_dice", {"count": 3, "sides": 2})
        assert rolled.structured_content
        assert 3 <= rolled.structured_content["total"] <= 6
        hot = await host.call_tool(
            "convert_units", {"value": 100, "unit": "celsius", "to": "fahrenheit"}
        )
        assert words(hot) == "100 celsius = 212 fahrenheit"
        mixed = await host.call_tool("convert_units", {"value": 1, "unit": "kg", "to": "km"})
        assert mixed.is_error


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_slow_reports_every_step_before_its_result(mode: str) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with asyncio.timeout(20), client("workshop", mode) as host:
        arguments = {"seconds": 0.1, "steps": 3}
        result = await host.call_tool("slow", arguments, progress_callback=note)

    assert words(result) == "finished 3 steps in 0.1 seconds"
    assert steps == [(n, 3, f"step {n} of 3") for n in (1, 2, 3)]


async def test_a_wrong_argument_is_a_result_and_an_unknown_tool_an_error() -> None:
    async with asyncio.timeout(20), client("basics", "legacy") as host:
        wrong = await host.call_tool("add", {"a": True, "c": 1})
        assert wrong.is_error
        assert words(wrong) == "b is required; a must be a number; c is not an argument"
        with pytest.raises(MCPError, match="Unknown tool: subtract"):
            await host.call_tool("subtract", {})


def talk(server: str, *lines: Json | list[Json] | str) -> list[Json]:
    """Everything that the server says to these lines, and then to the end of its input."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    done = subprocess.run(
        [sys.executable, "-m", "mcp_workbench.demo", server],
        input=text.encode(),
        capture_output=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask(number: int, method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def modern(version: str = "2026-07-28") -> Json:
    return {f"{META}protocolVersion": version, f"{META}clientCapabilities": {}}


@pytest.mark.parametrize("offered", [*LEGACY, "1999-01-01", "2026-07-28"])
def test_initialize_agrees_on_a_legacy_revision(offered: str) -> None:
    (greeting, pong) = talk(
        "basics", ask(0, "initialize", protocolVersion=offered, capabilities={}), ask(1, "ping")
    )
    agreed = offered if offered in LEGACY else "2025-11-25"
    assert greeting["result"]["protocolVersion"] == agreed
    assert pong == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_modern_request_stands_alone() -> None:
    (found, listed, called) = talk(
        "basics",
        ask(1, "server/discover", _meta=modern()),
        ask(2, "tools/list", _meta=modern()),
        ask(3, "tools/call", name="add", arguments={"a": 1, "b": 1}, _meta=modern()),
    )
    assert found["result"]["supportedVersions"] == ["2026-07-28"]
    for answer in (found, listed):
        assert answer["result"]["ttlMs"] > 0
        assert answer["result"]["cacheScope"] == "public"
    for answer in (found, listed, called):
        assert answer["result"]["resultType"] == "complete"
        assert answer["result"]["_meta"][f"{META}serverInfo"]["name"] == "demo-basics"
    assert "ttlMs" not in called["result"]


def test_what_is_refused_is_refused_with_the_right_code() -> None:
    answers = talk(
        "basics",
        ask(1, "tools/list"),
        ask(2, "server/discover", _meta={f"{META}protocolVersion": "2026-07-28"}),
        ask(3, "server/discover", _meta=modern("2030-01-01")),
        ask(4, "ping", _meta=modern()),
        "{not json",
        [ask(5, "ping")],
        {"jsonrpc": "2.0", "id": [6], "method": "ping"},
        ask(7, "initialize", protocolVersion="2025-11-25"),
        ask(8, "server/discover"),
        ask(9, "tools/call", name=["echo"]),
        ask(10, "tools/call", name="echo", arguments="text"),
    )
    told = [(a["id"], a["error"]["code"]) for a in answers if "error" in a]
    assert told == [
        (1, -32602),
        (2, -32602),
        (3, -32022),
        (4, -32601),
        (None, -32700),
        (None, -32600),
        (None, -32600),
        (8, -32601),
        (9, -32602),
        (10, -32602),
    ]
    assert answers[2]["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2030-01-01"}


DEEP = 100_000  # levels that no Python reads


@pytest.mark.parametrize("levels", [900, 980, 990, 1000, 1010, DEEP])
def test_a_message_that_is_nested_too_deeply_is_answered_with_an_error(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    places = {
        "arguments": f'"name": "echo", "arguments": {{"text": {deep}}}',
        "name": f'"name": {deep}',
        "progress": f'"name": "fail", "_meta": {{"progressToken": {deep}}}',
        "id": '"name": "echo", "arguments": {"id": [7]}',
    }
    answers = talk(
        "basics",
        ask(0, "initialize", protocolVersion="2025-11-25"),
        *(
            f'{{"method": "tools/call", "params": {{{params}}}, "jsonrpc": "2.0", "id": "{place}"}}'
            for place, params in places.items()
        ),
        f'{{"jsonrpc": "2.0", "method": "notifications/x", "params": {{"a": {deep}}}}}',
        ask(9, "ping"),
    )
    assert [answer["id"] for answer in answers] == [0, *places, 9]
    assert all("error" in a or a["result"]["isError"] for a in answers[1:-1])


@pytest.mark.parametrize(
    "line", ["[" * DEEP, "[" * DEEP + "]" * DEEP, '{"id": 1, "a": ' + "[" * DEEP]
)
def test_what_is_deep_and_no_request_has_no_id_to_answer(line: str) -> None:
    (refused,) = talk("basics", line)
    assert (refused["id"], refused["error"]["code"]) == (None, -32700)


async def test_a_slow_call_with_a_deep_progress_token_is_answered() -> None:
    token = "[" * 975 + "]" * 975
    params = f'"name": "slow", "arguments": {{"seconds": 0, "steps": 1}}, "_meta": {{"progressToken": {token}}}'
    async with asyncio.timeout(20), pipe("workshop") as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(ask(0, "initialize")).encode() + b"\n")
        await process.stdout.readline()
        process.stdin.write(
            f'{{"id": 1, "method": "tools/call", "params": {{{params}}}}}\n'.encode()
        )
        assert json.loads(await process.stdout.readline())["id"] == 1


def test_the_one_revision_with_batches_takes_them() -> None:
    answers = talk(
        "basics",
        ask(1, "initialize", protocolVersion="2025-03-26"),
        [ask(2, "ping"), {"jsonrpc": "2.0", "method": "notifications/initialized"}, ask(3, "ping")],
    )
    assert [answer["id"] for answer in answers] == [1, 2, 3]


def test_the_end_of_input_ends_a_slow_call_too() -> None:
    meta = modern() | {"progressToken": "t"}
    assert (
        talk("workshop", ask(1, "tools/call", name="slow", arguments={"seconds": 60}, _meta=meta))
        == []
    )


@asynccontextmanager
async def pipe(server: str) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "mcp_workbench.demo", server),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_cancelled_call_ends_unanswered_and_delays_nobody() -> None:
    meta = modern() | {"progressToken": 7}
    long = ask(1, "tools/call", name="slow", arguments={"seconds": 60, "steps": 100}, _meta=meta)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    quick = ask(2, "tools/call", name="word_count", arguments={"text": "a b"}, _meta=modern())
    async with asyncio.timeout(20), pipe("workshop") as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(long).encode() + b"\n")
        progress = json.loads(await process.stdout.readline())
        assert progress["params"]["progressToken"] == 7

        process.stdin.write(
            json.dumps(cancel).encode() + b"\n" + json.dumps(quick).encode() + b"\n"
        )
        process.stdin.write_eof()
        rest = [json.loads(line) for line in (await process.stdout.read()).splitlines()]

        assert [message["id"] for message in rest if "id" in message] == [2]
        assert await process.wait() == 0


def test_without_a_configuration_both_are_offered() -> None:
    (toolbox,) = demo_snapshot().toolboxes.values()
    assert (toolbox.name, list(toolbox.servers)) == ("demo", ["basics", "workshop"])
    assert "`mcp-workbench import` or `mcp-workbench add`" in toolbox.description
    assert len(toolbox.description) <= 160  # what the instructions show of a description


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["basics", "workshop"]])
def test_a_wrong_name_is_told_on_stderr(argv: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mcp_workbench.demo", *argv],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: python -m mcp_workbench.demo basics|workshop\n"
