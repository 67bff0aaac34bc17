"""Every call is one line of the log, whoever makes it and however it ends."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import mcp_workbench
from mcp_workbench import ToolIdentifier, Workbench, WorkbenchError, load_config
from mcp_workbench.core import raw_json
from mcp_workbench.gateway.call_log import LONGEST_NAME, CallLog, LogUnusable, OutcomeWord
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import run_command, serving
from tests.kit.config import config_file, entry, offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import unmeasured
from tests.kit.results import use_tool
from tests.kit.shared import shared

pytestmark = pytest.mark.usefixtures("forked_commands")

FIELDS = ["time", "principal", "host", "toolbox", "server", "tool", "outcome", "ms", "bytes"]
SECRET = "not for the log"
PAGE = Path(__file__).parents[2] / "docs" / "call-log.md"
SOURCE = Path(mcp_workbench.__file__).parent


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


@pytest.mark.parametrize("length", [raw_json.LONGEST_NAME // 2, 1 << 20])
def test_a_long_name_is_a_short_line(tmp_path: Path, calls: Path, length: int) -> None:
    name = "t" * length
    file = config_file(tmp_path, {"a": entry()})
    with PipeHost(file, "--log-calls", str(calls)) as host:
        host.initialize()
        host.use("a", name)
        host.use(name, "echo")
        host.use("a", "echo", toolbox=name)
        host.request("tools/call", {"name": name})
        host.use("a", "echo")

    text = calls.read_text()
    unknown = ["unknown_tool", "unknown_server", "unknown_toolbox"]
    is_read = length < raw_json.LONGEST_NAME
    refused = unknown if is_read else ["invalid_parameters"] * 3
    assert [line["outcome"] for line in lines(calls)] == [*refused, "invalid_request", "ok"]
    assert max(map(len, text.splitlines())) < 1000
    assert lines(calls)[0]["tool"] == (name[:LONGEST_NAME] + "…" if is_read else "use_tool")


TORN = """
import asyncio, os, resource, sys
from mcp_workbench import ToolIdentifier, Workbench, load_config
from mcp_workbench.gateway.call_log import CallLog

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    config, calls = sys.argv[1:]
    async with Workbench(load_config(config), interceptors=[CallLog(calls)]) as workbench:
        async def use():
            await workbench.use_tool(ToolIdentifier("dev", "a", "echo"))
            await asyncio.sleep(0)  # the line is written in the next round of the loop
            return os.path.getsize(calls)
        whole = await use()
        limit(whole + 30)  # room for the start of a line
        torn = await use()
        nothing = await use()
        limit(resource.RLIM_INFINITY)
        print(torn - whole, nothing - torn)
        await use()

asyncio.run(main())
"""


def test_after_a_torn_line_the_next_one_is_whole(tmp_path: Path, calls: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    done = subprocess.run(
        [sys.executable, "-c", TORN, str(file), str(calls)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=unmeasured(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["30", "0"]

    whole, torn, last = calls.read_bytes().split(b"\n")[:-1]

    assert [json.loads(line)["outcome"] for line in (whole, last)] == ["ok", "ok"]
    assert len(torn) == 30
    assert done.stderr.count("calls can't be logged") == 1, "until it works again"


# The page


def test_the_page_lists_the_fields_of_a_line() -> None:
    fields = list(FIELDS)
    fields.insert(fields.index("tool") + 1, "method")
    assert _listed("Fields") == fields

    example = re.search(r"```json\n(.*)\n```", PAGE.read_text("utf-8"))
    assert example is not None
    assert list(json.loads(example[1])) == FIELDS


def test_the_page_lists_every_outcome() -> None:
    # Errors that are not about a call: of the configuration, of starting, of our own tools.
    others = {
        "invalid_config", "log_unusable", "port_refused", "tour_failed", "daemon_failed",
        "unknown_result", "registry_failed",
    }  # fmt: skip
    codes = set(_error_codes())
    assert others < codes
    assert set(_listed("Outcomes")) == {*get_args(OutcomeWord), *(codes - others)}


def _listed(section: str) -> list[str]:
    """The first column of the tables in this section of the page."""
    text = PAGE.read_text("utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


# Which argument is an error's code.
_CODE_AT = {
    "CallFailed": 0, "Failure": 0, "NotFound": 0, "ServerUnavailable": 0, "give_up": 0, "not_run": 0,
}  # fmt: skip


def _error_codes() -> Iterator[str]:
    """Every code that the source gives to an error."""
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            for given in _code_values(node):
                value = constants.get(given.id) if isinstance(given, ast.Name) else given
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                    yield value.value


def _code_values(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        at = _CODE_AT.get(name, len(node.args))
        yield from node.args[at : at + 1]
    elif isinstance(node, ast.ClassDef) and node.bases:
        for item in node.body:
            if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "code":
                yield item.value


def test_a_file_of_another_user_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text("")
    somebody = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody)

    with pytest.raises(LogUnusable, match="belongs to another user"):
        CallLog(str(path))
