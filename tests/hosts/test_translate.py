"""Entries in the words of hosts, in ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.validate import validate
from mcp_workbench.hosts.files import Machine, file_to_change
from mcp_workbench.hosts.plan import normal_url, plain_name
from mcp_workbench.hosts.read import ANY_FILE, is_ourselves, read_entry
from mcp_workbench.hosts.table import HOSTS, Host

AROUND = Machine(Path("/home/ada"), Path("/home/ada/work"), {})


def host(name: str) -> Host:
    return HOSTS.get(name, ANY_FILE)


@pytest.mark.parametrize(
    ("who", "raw", "ours"),
    [
        ("file", {"command": "x", "args": [1, "b"]}, {"command": "x", "args": ["1", "b"]}),
        ("opencode", {"type": "local", "command": ["x", "y"]}, {"command": "x", "args": ["y"]}),
        ("opencode", {"type": "local", "command": ["x"], "timeout": 5000}, {"command": "x"}),
        ("gemini", {"httpUrl": "http://a/"}, {"url": "http://a/"}),
        ("gemini", {"url": "http://a/"}, {"url": "http://a/", "type": "sse"}),
        ("gemini", {"url": "http://a/", "type": "http"}, {"url": "http://a/"}),
        ("cursor", {"url": "http://a/"}, {"url": "http://a/"}),
        ("windsurf", {"serverUrl": "http://a/"}, {"url": "http://a/"}),
        ("claude-code", {"type": "sse", "url": "http://a/"}, {"url": "http://a/", "type": "sse"}),
        ("claude-code", {"command": "x", "timeout": 1500}, {"command": "x", "timeout": 1.5}),
        ("zed", {"command": "x", "timeout": 30, "enabled": False}, {"command": "x", "timeout": 30, "disabled": True}),
        ("copilot", {"command": "x", "tools": ["a"]}, {"command": "x", "toolFilters": ["a"]}),
        ("gemini", {"command": "x", "includeTools": ["a"], "excludeTools": ["b"]}, {"command": "x", "toolFilters": ["a", "!b"]}),
        ("codex", {"url": "http://a/", "env_http_headers": {"X": "V"}, "http_headers": {"Y": "${Z}"}},
         {"url": "http://a/", "headers": {"Y": "$${Z}", "X": "${V}"}}),
        ("vscode", {"command": "${userHome}/x", "env": {"A": True, "B": None, "C": 1.5}},
         {"command": "/home/ada/x", "env": {"A": "true", "C": "1.5"}}),
    ],
)  # fmt: skip
def test_fields(who: str, raw: dict[str, Any], ours: dict[str, Any]) -> None:
    found = read_entry("s", raw, host(who), "f", AROUND)

    assert found.entry == ours
    _, problems = validate({"mcpServers": {"s": found.entry}}, {"V": "", "Z": ""})
    assert [p.code for p in problems if p.code != "WB-CONF-021"] == []


@pytest.mark.parametrize(
    ("who", "text", "ours"),
    [
        ("claude-code", "${A} ${B:-c}", "${A} ${B:-c}"),
        ("claude-code", "${env:A}", "$${env:A}"),
        ("cursor", "${env:A}-${workspaceFolder}", "${A}-/home/ada/work"),
        ("gemini", "$A %B% ${C}", "${A} ${B} ${C}"),
        ("opencode", "{env:A} {file:./x}", "${A} {file:./x}"),
        ("vscode", "${input:my-key}", "${MY_KEY}"),
        ("codex", "${A}", "$${A}"),
        ("codex", "100% $A", "100% $A"),
        ("windsurf", "${file:/x}", "$${file:/x}"),
    ],
)
def test_variables(who: str, text: str, ours: str) -> None:
    found = read_entry("s", {"command": "x", "env": {"N": text}}, host(who), "f", AROUND)

    assert found.entry["env"] == {"N": ours}


@pytest.mark.parametrize(
    ("who", "raw", "why"),
    [
        ("claude-code", {"type": "ws", "url": "ws://a"}, "its type is 'ws'"),
        ("vscode", {"url": "unix:///x"}, "its URL is neither http nor https"),
        ("zed", {"settings": {}}, "neither a command nor a URL"),
        ("claude-code", {"url": "http://a", "headersHelper": "x"}, "'headersHelper'"),
        ("claude-code", {"command": "${CLAUDE_PLUGIN_ROOT}/x"}, "only the host can fill"),
        ("cursor", {"command": ""}, "neither a command nor a URL"),
        ("cursor", 7, "no object"),
        ("cursor", {"command": "/opt/bin/mcp-workbench", "args": ["serve"]}, "this program"),
    ],
)
def test_what_can_not_be_carried_is_skipped_with_the_reason(who: str, raw: Any, why: str) -> None:
    assert why in read_entry("s", raw, host(who), "f", AROUND).skipped


def test_what_is_left_behind_is_named() -> None:
    raw = {"command": "x", "trust": True, "sandbox": 1, "oauth": 2}

    notes = read_entry("s", raw, HOSTS["gemini"], "f", AROUND).notes

    assert notes == ("approval stays with the host: trust", "not carried: sandbox, oauth")


@pytest.mark.parametrize(
    ("command", "args", "us"),
    [
        ("/x/mcp-workbench", [], True),
        (r"C:\x\mcp-workbench.exe", [], True),
        ("uvx", ["--from", "y", "mcp-workbench", "serve"], True),
        ("python", ["-m", "mcp_workbench", "serve"], True),
        ("python", ["-m", "mcp_workbench.demo", "basics"], False),
        ("npx", ["-y", "server-github"], False),
    ],
)
def test_we_know_ourselves(command: str, args: list[str], us: bool) -> None:
    assert is_ourselves({"command": command, "args": args}) == us


def test_names_and_addresses_are_compared_in_one_form() -> None:
    assert [plain_name(n) for n in ("a b", "x__y", "z_", "ü", "-a-", "__")] == [
        "a-b", "x-y", "z", "server", "a", "server",
    ]  # fmt: skip
    assert normal_url("HTTPS://Example.com:443/mcp/") == "https://example.com/mcp"
    assert normal_url("http://a:8080/x?y=1") == "http://a:8080/x?y=1"


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_every_host_has_a_place_on_every_system(system: str) -> None:
    machine = Machine(AROUND.home, AROUND.folder, {}, system)
    for name, one in HOSTS.items():
        scope = "user" if one.user else "project"
        file = file_to_change(one, scope, machine)
        assert file, name
        assert file.path.is_relative_to(machine.home), name


def test_variables_move_the_places() -> None:
    moved = Machine(AROUND.home, AROUND.folder, {"CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/d"})
    paths = [file_to_change(HOSTS[name], "user", moved) for name in ("codex", "claude-code")]
    assert [str(file.path) for file in paths if file] == ["/c/config.toml", "/d/.claude.json"]
