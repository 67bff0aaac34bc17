"""Every call is one line of the log, whoever makes it and however it ends."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import hmac
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import mcp_workbench
from mcp_workbench import ToolIdentifier, Workbench, WorkbenchError, load_config
from mcp_workbench.config.audit_settings import LogUnusable
from mcp_workbench.core import raw_json
from mcp_workbench.gateway.audit import AuditLog
from mcp_workbench.gateway.audit_file import AuditFile
from mcp_workbench.gateway.call_summary import LONGEST_NAME, OutcomeWord
from mcp_workbench.gateway.reload import applied_now
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import run_command, serving
from tests.kit.config import config_file, entry, offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import use_tool
from tests.kit.shared import shared

pytestmark = pytest.mark.usefixtures("forked_commands")

FIELDS = [
    "v", "ts", "seq", "pid", "principal", "host", "host_version", "door", "era", "parent", "toolbox",
    "server", "tool", "mode", "box", "outcome", "is_error", "may_have_run", "retried", "ms", "args_bytes",
    "args_mac", "result_bytes",
]  # fmt: skip
SECRET = "not for the log"
PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
SOURCE = Path(mcp_workbench.__file__).parent


def logging_to(path: Path) -> AuditLog:
    return AuditLog(AuditFile(str(path)), {"MCP_WORKBENCH_HOME": str(path.parent)})


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
    assert all(line["ms"]["total"] >= line["ms"]["server"] >= 0 for line in lines(calls))
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
        eventually(lambda: len(lines(calls)) == 1, "it is logged, after its answer")


async def test_a_python_program_and_its_own_interceptor(tmp_path: Path, calls: Path) -> None:
    file = config_file(tmp_path, {"a": entry()})
    config = load_config(str(file))
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(config, interceptors=[logging_to(calls)]) as workbench,
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
        AuditFile("/dev/null").open()


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


# What a line says


@pytest.mark.parametrize("modern", [False, True])
def test_a_line_says_who_called_through_which_door(
    tmp_path: Path, calls: Path, *, modern: bool
) -> None:
    file = config_file(tmp_path, {"a": entry()}, audit={"file": str(calls)})
    with PipeHost(file, modern=modern) as host:
        host.handshake()
        host.use("a", "echo", {"text": "x"})
        host.use("a", "echo", {"text": "x"})
        host.use("a", "echo", {"text": "y"})
        host.use("nobody", "echo", {"text": "x"})

    first, second, other, unknown = lines(calls)
    assert [line["seq"] for line in lines(calls)] == [1, 2, 3, 4]
    assert first["host"]
    assert first["host_version"]
    assert (first["v"], first["door"], first["mode"], first["parent"]) == (1, "stdio", "proxy", "")
    assert first["era"] == ("modern" if modern else "legacy")
    assert (first["is_error"], first["may_have_run"], first["retried"]) == (False, True, False)
    assert (unknown["is_error"], unknown["may_have_run"]) == (True, False)
    assert first["args_bytes"] == len('{"text": "x"}')
    assert first["args_mac"] == second["args_mac"] == unknown["args_mac"] != other["args_mac"]
    assert len(first["args_mac"]) == 32
    assert first["result_bytes"] > 0 == unknown["result_bytes"]
    assert first["ms"]["connect"] > 0, "its server was started for it"
    assert second["ms"]["connect"] == unknown["ms"]["server"] == 0
    assert second["ms"]["server"] > 0


def test_the_digest_is_an_hmac_under_a_key_that_only_its_user_can_read(
    tmp_path: Path, calls: Path
) -> None:
    file = config_file(tmp_path, {"a": entry()}, audit={"file": "calls.jsonl"})
    home = tmp_path / "home"
    with PipeHost(file, env={"MCP_WORKBENCH_HOME": str(home)}) as host:
        host.initialize()
        host.use("a", "echo", {"text": "x"})

    key = home / "audit" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    text = b'{"text": "x"}'
    expected = hmac.digest(key.read_bytes(), text, "sha256")[:16].hex()
    assert lines(calls)[0]["args_mac"] == expected
    assert lines(calls)[0]["args_mac"] != hashlib.sha256(text).hexdigest()[:32]


def test_without_a_file_it_is_in_the_state_folder(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry()}, audit=True)
    home = tmp_path / "home"
    with PipeHost(file, env={"MCP_WORKBENCH_HOME": str(home)}) as host:
        host.initialize()
        host.use("a", "echo")

    written = home / "audit" / "calls.jsonl"
    assert logged(written) == [("a", "echo", "ok")]
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path, calls: Path) -> None:
    calls.touch(0o644)
    calls.chmod(0o644)
    AuditFile(str(calls)).open()

    assert stat.S_IMODE(calls.stat().st_mode) == 0o600


def test_a_call_that_was_sent_again_says_so(tmp_path: Path, calls: Path) -> None:
    tools = tmp_path / "tools.json"
    hints = {"readOnlyHint": True}
    once = {"name": "die_once", "inputSchema": {"type": "object"}, "annotations": hints}
    tools.write_text(json.dumps([once, {"name": "die", "inputSchema": {"type": "object"}}]))
    file = config_file(tmp_path, {"a": entry(f"tools={tools}")}, audit={"file": str(calls)})
    with PipeHost(file) as host:
        host.initialize()
        host.use("a", "die_once", {"file": str(tmp_path / "runs")})
        host.use("a", "die")

    again, lost = lines(calls)
    assert (again["outcome"], again["retried"]) == ("ok", True)
    assert (lost["outcome"], lost["may_have_run"]) == ("server_exited", True)
    assert lost["retried"] is False


# Arguments


def test_arguments_are_recorded_where_a_server_s_entry_says_so(tmp_path: Path, calls: Path) -> None:
    secret = "s3cr3t-of-the-entry"
    env = {"TOKEN": "${CANARY}"}
    servers = {"shown": entry(auditArguments=True, env=env), "hidden": entry(env=env)}
    file = config_file(tmp_path, servers, audit={"file": str(calls)})
    arguments = {
        "text": f"with {secret} inside",
        "password": "hunter2",
        "deep": [{"api_key": "k", "n": 5}],
    }
    with PipeHost(file, env={"CANARY": secret}) as host:
        host.initialize()
        host.use("shown", "echo", arguments)
        host.use("hidden", "echo", arguments)
        host.use("shown", "echo", {"text": "z" * 10_000})
        host.use("shown", "echo", {"text": "z" * 100_000})
        host.use("shown", "echo", {"text": "\0" * 10_000})

    shown, hidden, cut, long, odd = lines(calls)
    assert json.loads(shown["arguments"]) == {
        "text": "with [secret:CANARY] inside",
        "password": "[secret]",
        "deep": [{"api_key": "[secret]", "n": 5}],
    }
    assert "arguments" not in hidden
    assert cut["arguments"].startswith('{"text":"zzz')
    assert cut["arguments"].endswith("z…")
    assert "too long" in long["arguments"]
    assert odd["arguments"].endswith("…")
    text = calls.read_bytes()
    assert secret.encode() not in text
    assert b"hunter2" not in text
    assert max(map(len, text.splitlines())) < 4096


def test_arguments_of_all_servers_but_one(tmp_path: Path, calls: Path) -> None:
    servers = {"a": entry(), "b": entry(auditArguments=False)}
    file = config_file(tmp_path, servers, audit={"file": str(calls), "arguments": True})
    with PipeHost(file) as host:
        host.initialize()
        host.use("a", "echo", {"text": "x"})
        host.use("b", "echo", {"text": "x"})

    assert [line.get("arguments") for line in lines(calls)] == ['{"text":"x"}', None]


def test_odd_names_neither_forge_nor_lengthen_a_line(tmp_path: Path, calls: Path) -> None:
    file = config_file(tmp_path, {"a": entry()}, audit={"file": str(calls)})
    name = '\n{"v":1}\u2028\x1b\0' * 40
    with PipeHost(file) as host:
        host.initialize()
        host.use("a", name)
        host.use(name, "echo", toolbox=name)
        host.use("a", "echo")

    raw = calls.read_bytes().splitlines()
    assert [json.loads(line)["seq"] for line in raw] == [1, 2, 3]
    assert max(map(len, raw)) < 4096
    assert calls.read_text().replace("\n", "").isprintable()


# The configuration


def test_a_change_of_it_takes_effect_at_the_next_start(tmp_path: Path, calls: Path) -> None:
    config = load_config(str(config_file(tmp_path, {"a": entry()})))
    audited = load_config(str(config_file(tmp_path, {"a": entry()}, audit={"file": str(calls)})))

    assert applied_now(config, audited) == (config, ("audit",))
    assert applied_now(audited, config) == (audited, ("audit",))


def test_both_files_are_written_where_both_are_named(tmp_path: Path, calls: Path) -> None:
    other = tmp_path / "other.jsonl"
    file = config_file(tmp_path, {"a": entry()}, audit={"file": str(calls)})
    with PipeHost(file, "--log-calls", str(other)) as host:
        host.initialize()
        host.use("a", "echo")
    with PipeHost(file, "--log-calls", str(calls)) as host:
        host.initialize()
        host.use("a", "echo")

    assert len(lines(other)) == 1
    assert len(lines(calls)) == 2


# The page


def test_the_page_lists_the_fields_of_a_line() -> None:
    fields = list(FIELDS)
    fields.insert(fields.index("tool") + 1, "method")
    assert _listed("Fields") == [*fields, "pin_state", "lost", "arguments"]

    example = re.search(r"```json\n(.*)\n```", PAGE.read_text("utf-8"))
    assert example is not None
    assert list(json.loads(example[1])) == FIELDS


def test_the_page_lists_every_outcome() -> None:
    # Errors that are not about a call: of the configuration, of starting, of our own tools.
    others = {
        "invalid_config", "log_unusable", "port_refused", "tour_failed", "daemon_failed",
        "unknown_result", "registry_failed", "script_failed", "scripts_unavailable", "lock_unusable",
        "not_approved", "engine_away", "cluster_refused",
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


# What every file has that gives one: most have none of it, and need not be parsed.
_GIVES_CODE = re.compile(rf"\b(?:{'|'.join(_CODE_AT)})\b|\bcode\s*=")


def _error_codes() -> Iterator[str]:
    """Every code that the source gives to an error."""
    for file in SOURCE.rglob("*.py"):
        text = file.read_text("utf-8")
        if not _GIVES_CODE.search(text):
            continue
        tree = ast.parse(text)
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
        AuditFile(str(path)).open()
