"""Every call is one line of the log, whoever makes it and however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench import ToolIdentifier, Workbench, WorkbenchError, load_config
from mcp_workbench.gateway.call_log import CallLog, LogUnusable
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import run_command, serving
from tests.kit.config import config_file, entry, offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import use_tool
from tests.kit.shared import shared

FIELDS = ["time", "principal", "host", "toolbox", "server", "tool", "outcome", "ms", "bytes"]
SECRET = "not for the log"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


def lines(calls: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in calls.read_text().splitlines()]


def logged(calls: Path) -> list[tuple[str, Any, str]]:
    """Server, tool or method, and outcome of each line."""
    return [(o["server"], o.get("tool", o.get("method")), o["outcome"]) for o in lines(calls)]


def servers(**more: Any) -> dict[str, Any]:
    return {"a": entry(), "slow": entry(timeout=0.3), "dead": entry("stderr_exit"), **more}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_each_ending_has_its_code(tmp_path: Path, calls: Path, era: str, *, modern: bool) -> None:
    flags = ["modern"] if era == "modern" else []
    a = {**entry(*flags), "era": era}
    slow = {**entry(*flags, timeout=0.3), "era": era}
    file = config_file(tmp_path, {"a": a, "slow": slow, "dead": entry("stderr_exit")})
    with PipeHost(file, "--log-calls", str(calls), modern=modern) as host:
        host.handshake()
        host.use("a", "echo", {"text": SECRET})
        host.use("a", "fail")
        host.request("tools/call", _use("a", "error", error='{"code": -1, "message": "no"}'))
        host.use("a", "nope")
        host.use("nobody", "echo")
        host.use("dead", "echo")
        host.use("slow", "hang")
        host.call("use_tool", {"tool": "a"})
        host.request("tools/call", {"name": "no_such_tool"})
        held = host.begin_use("a", "hang")
        host.notify("notifications/cancelled", {"requestId": held})
        host.use("a", "echo")

    assert logged(calls) == [
        ("a", "echo", "ok"),
        ("a", "fail", "tool_error"),
        ("a", "error", "server_error"),
        ("a", "nope", "unknown_tool"),
        ("nobody", "echo", "unknown_server"),
        ("dead", "echo", "connect_failed"),
        ("slow", "hang", "timeout"),
        ("", "use_tool", "invalid_parameters"),
        ("", "no_such_tool", "invalid_request"),
        ("a", "hang", "cancelled"),
        ("a", "echo", "ok"),
    ]
    assert SECRET not in calls.read_text()
    assert list(lines(calls)[0]) == FIELDS
    assert {line["principal"] for line in lines(calls)} == {"local"}
    assert all(line["ms"] >= 0 for line in lines(calls))
    assert stat.S_IMODE(calls.stat().st_mode) == 0o600


def _use(server: str, name: str, **arguments: Any) -> dict[str, Any]:
    return use_tool(server, name, arguments)


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("naming", ["flat", "bare"])
def test_so_it_is_under_tools_own_names(
    tmp_path: Path, calls: Path, naming: str, *, modern: bool
) -> None:
    more = {"naming": "bare"} if naming == "bare" else {}
    file = config_file(tmp_path, {"a": entry()}, toolMode="dynamic", **more)
    prefix = "" if naming == "bare" else "dev__a__"
    with PipeHost(file, "--log-calls", str(calls), modern=modern) as host:
        host.handshake()
        host.call(f"{prefix}echo", {"text": "x"})
        host.call(f"{prefix}fail")
        host.request("tools/call", {"name": f"{prefix}nope"})

    outcomes = ["ok", "tool_error", "invalid_request" if naming == "bare" else "unknown_tool"]
    assert [line["outcome"] for line in lines(calls)] == outcomes


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_requests_for_prompts_and_resources_are_calls_too(
    tmp_path: Path, calls: Path, era: str, *, modern: bool
) -> None:
    file = config_file(tmp_path, {"one": offers_entry("one", era)})
    with PipeHost(file, "--log-calls", str(calls), modern=modern) as host:
        host.handshake()
        if not modern:
            host.open()
        uri = host.result("resources/list")["resources"][0]["uri"]
        prompt = host.result("prompts/list")["prompts"][0]["name"]
        host.request("resources/read", {"uri": uri})
        host.request("prompts/get", {"name": prompt, "arguments": {"a": "1", "who": "x"}})
        reference = {"type": "ref/prompt", "name": prompt}
        argument = {"name": "who", "value": "x"}
        host.request("completion/complete", {"ref": reference, "argument": argument})
        host.request("prompts/get", {"name": "dev__one__none"})
        host.request("resources/read", {"uri": "none://x"})

    what = [(line["server"], line["method"]) for line in lines(calls)]
    assert what[-1][1] == "resources/read", "whosever it was thought to be"
    assert what == [
        ("one", "resources/read"),
        ("one", "prompts/get"),
        ("one", "completion/complete"),
        ("one", "prompts/get"),
        what[-1],
    ]


@pytest.mark.parametrize("modern", [False, True])
def test_over_http_the_tokens_name_stands_in_the_line(
    tmp_path: Path, calls: Path, *, modern: bool
) -> None:
    file = config_file(tmp_path, {"a": entry()})
    with serving(file, "0", None, "--log-calls", str(calls)) as command:
        host = HttpHost(command.url, modern=modern)
        try:
            for _ in range(3):
                host.request("tools/call", _use("a", "echo"))
            host.request("tools/call", _use("a", "nope"))
            eventually(lambda: len(lines(calls)) == 4, "all are logged")  # before it is killed
        finally:
            host.close()

    assert logged(calls) == [("a", "echo", "ok")] * 3 + [("a", "nope", "unknown_tool")]
    assert {line["principal"] for line in lines(calls)} == {"(anonymous)"}


def test_the_shared_workbench_logs_the_calls_of_all_its_hosts(tmp_path: Path, calls: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    with (
        shared(file, "--log-calls", str(calls)) as bench,
        bench.host() as legacy,
        bench.host(modern=True) as modern,
    ):
        legacy.initialize()
        for _ in range(2):
            legacy.use("a", "echo")
            modern.use("a", "echo")
        held = legacy.begin_use("a", "hang")
        legacy.notify("notifications/cancelled", {"requestId": held})
        eventually(lambda: len(lines(calls)) == 5, "all are logged")

    assert [line["outcome"] for line in lines(calls)] == ["ok"] * 4 + ["cancelled"]


def test_a_host_whose_calls_are_logged_does_not_join(tmp_path: Path, calls: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    with shared(file) as bench, bench.host("--log-calls", str(calls)) as host:
        host.initialize()
        host.use("a", "echo")

        assert bench.status()["hosts"] == []
        assert len(lines(calls)) == 1


async def test_a_python_program_and_its_own_interceptor(tmp_path: Path, calls: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    config = load_config(str(file))
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(config, interceptors=[CallLog(str(calls))]) as workbench,
    ):
        await workbench.use_tool(ToolIdentifier("dev", "a", "echo"))
        with pytest.raises(WorkbenchError):
            await workbench.use_tool(ToolIdentifier("dev", "a", "nope"))
        call = asyncio.create_task(workbench.use_tool(ToolIdentifier("dev", "a", "hang")))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])

    assert [line["outcome"] for line in lines(calls)] == ["ok", "unknown_tool", "cancelled"]


def test_a_person_s_call_is_one_line(tmp_path: Path, calls: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    words = ("--config", str(file), "--log-calls", str(calls))
    assert run_command("call", "dev/a/echo", "text=x", *words, cwd=tmp_path).status == 0
    assert run_command("call", "dev/a/nope", *words, cwd=tmp_path).status != 0
    assert run_command("call", "dev/a/echo", "text:=5", *words, cwd=tmp_path).status != 0

    assert [(line["host"], line["outcome"]) for line in lines(calls)] == [
        ("mcp-workbench call", "ok"),
        ("mcp-workbench call", "unknown_tool"),
        ("mcp-workbench call", "invalid_parameters"),
    ]


def test_a_file_that_can_not_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    words = ("--config", str(file), "--log-calls", str(tmp_path / "none" / "calls"))
    ended = run_command("call", "dev/a/echo", *words, cwd=tmp_path)

    assert ended.status != 0
    assert "calls can't be logged in" in ended.err
    with pytest.raises(LogUnusable, match="not a regular file"):
        CallLog("/dev/null")


def test_a_disk_that_is_full_costs_no_call(
    tmp_path: Path, calls: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        config = load_config(str(config_file(tmp_path, {"a": entry()})))
        log = CallLog(str(calls))
        async with asyncio.timeout(PATIENCE), Workbench(config, interceptors=[log]) as workbench:
            log._fd = os.open("/dev/full", os.O_WRONLY)  # pyright: ignore[reportPrivateUsage]
            for _ in range(3):
                await workbench.use_tool(ToolIdentifier("dev", "a", "echo"))

    asyncio.run(scene())

    warned = [record for record in caplog.records if "can't be logged" in record.getMessage()]
    assert len(warned) == 1
