"""A thousand calls of four outcomes are a thousand lines, through every door and in both eras."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench import ToolIdentifier, Workbench, WorkbenchError, load_config
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import run_command, serving
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import use_tool
from tests.kit.shared import shared

pytestmark = pytest.mark.usefixtures("forked_commands")

OF_EACH = 250
AT_ONCE = 25
ERROR = '{"code": -1, "message": "no"}'
FEW = 2  # of each outcome, where a command is started for every call


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_file(tmp_path, {"a": entry()}, audit={"file": "calls.jsonl"})


def lines(calls: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in calls.read_bytes().splitlines()]


def count(calls: Path) -> int:
    return calls.read_bytes().count(b"\n") if calls.exists() else 0


def outcomes(calls: Path) -> Counter[str]:
    return Counter(line["outcome"] for line in lines(calls))


def make_calls(host: PipeHost) -> None:
    """A thousand calls, many of them in flight at a time."""
    for _ in range(OF_EACH // AT_ONCE):
        ids = [host.begin_use("a", tool) for tool in ("echo", "fail") for _ in range(AT_ONCE)]
        ids += [host.begin_use("nobody", "echo") for _ in range(AT_ONCE)]
        held = [host.begin_use("a", "hang") for _ in range(AT_ONCE)]
        for id in ids:
            host.answer(id)
        for id in held:
            host.notify("notifications/cancelled", {"requestId": id})


FOUR = {
    "ok": OF_EACH,
    "tool_error": OF_EACH,
    "unknown_server": OF_EACH,
    "cancelled": OF_EACH,
}


@pytest.mark.parametrize("modern", [False, True])
def test_over_stdio(config: Path, calls: Path, *, modern: bool) -> None:
    with PipeHost(config, modern=modern) as host:
        host.handshake()
        make_calls(host)
        host.use("a", "echo")  # those before it were read, and cancelled

    assert outcomes(calls) == {**FOUR, "ok": OF_EACH + 1}
    assert {(line["door"], line["era"]) for line in lines(calls)} == {
        ("stdio", "modern" if modern else "legacy")
    }
    assert [line["seq"] for line in lines(calls)] == list(range(1, 1002))


@pytest.mark.parametrize("modern", [False, True])
def test_over_http(config: Path, calls: Path, *, modern: bool) -> None:
    with serving(config) as command:
        host = HttpHost(command.url, modern=modern)
        requests = [
            use_tool("a", "echo"),
            use_tool("a", "fail"),
            use_tool("a", "error", {"error": ERROR}),
            use_tool("nobody", "echo"),
        ]
        try:
            for _ in range(OF_EACH):
                for params in requests:
                    host.request("tools/call", params)
            eventually(lambda: count(calls) == 4 * OF_EACH, "all are recorded")
        finally:
            host.close()

    assert outcomes(calls) == dict.fromkeys(
        ("ok", "tool_error", "server_error", "unknown_server"), OF_EACH
    )
    assert {(line["door"], line["era"]) for line in lines(calls)} == {
        ("http", "modern" if modern else "legacy")
    }


def test_a_call_whose_headers_contradict_it_is_on_record(config: Path, calls: Path) -> None:
    with serving(config) as command:
        host = HttpHost(command.url, modern=True)
        try:
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
            host.request("tools/call", use_tool("a", "echo"))
            body = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {}})
            status, _, answer = command.post(
                body.encode(), **{name.replace("-", "_"): value for name, value in headers.items()}
            )
            eventually(lambda: count(calls) == 2, "both are recorded")
        finally:
            host.close()

    assert (status, answer["id"]) == (400, 5)
    assert [line["outcome"] for line in lines(calls)] == ["ok", "invalid_request"]


@pytest.mark.parametrize("modern", [False, True])
def test_through_the_shared_workbench(config: Path, calls: Path, *, modern: bool) -> None:
    with shared(config) as bench:
        with bench.host(modern=modern) as host:
            host.handshake()
            make_calls(host)
            host.use("a", "echo")
        assert bench.status()["logCalls"] == str(calls)
        assert bench.status()["callsNotLogged"] == 0
        assert f"calls are logged in {calls}\n" in bench.done("status")

    assert outcomes(calls) == {**FOUR, "ok": OF_EACH + 1}
    assert {(line["door"], line["era"]) for line in lines(calls)} == {
        ("daemon", "modern" if modern else "legacy")
    }


@pytest.mark.parametrize("is_shared", [False, True])
def test_by_the_command(config: Path, calls: Path, tmp_path: Path, *, is_shared: bool) -> None:
    def make(home: str) -> None:
        for _ in range(FEW):
            for words in (["echo"], ["fail"], ["nope"], ["echo", "text:=5"]):
                tool, *rest = words
                argv = ["call", f"dev/a/{tool}", *rest, "--config", str(config)]
                run_command(*argv, cwd=tmp_path, MCP_WORKBENCH_HOME=home)

    if is_shared:
        with shared(config) as bench:
            make(str(bench.home))
    else:
        make(str(tmp_path / "home"))

    words = ("ok", "tool_error", "unknown_tool", "invalid_parameters")
    assert outcomes(calls) == dict.fromkeys(words, FEW)
    assert {(line["door"], line["era"]) for line in lines(calls)} == {("cli", "")}
    assert len({line["pid"] for line in lines(calls)}) == (1 if is_shared else 4 * FEW)


async def test_by_a_python_program(config: Path, calls: Path) -> None:
    async with asyncio.timeout(3 * PATIENCE), Workbench(load_config(str(config))) as workbench:

        async def use(server: str, tool: str) -> None:
            try:
                await workbench.use_tool(ToolIdentifier("dev", server, tool))
            except WorkbenchError:
                return

        for _ in range(OF_EACH // AT_ONCE):
            async with asyncio.TaskGroup() as group:
                held = [group.create_task(use("a", "hang")) for _ in range(AT_ONCE)]
                for _ in range(AT_ONCE):
                    for target in (("a", "echo"), ("a", "fail"), ("nobody", "echo")):
                        group.create_task(use(*target))
                await use("a", "echo")  # those before it were sent
                for task in held:
                    task.cancel()

    assert outcomes(calls) == {**FOUR, "ok": OF_EACH + OF_EACH // AT_ONCE}
    assert {(line["door"], line["era"], line["host"]) for line in lines(calls)} == {
        ("python", "", "")
    }
