"""`tools` shows what there is, asked from the servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kit.command import run_command
from tests.kit.config import demo_server, toolbox, write_config


def test_every_tool_is_a_line_with_its_cost(tmp_path: Path) -> None:
    done = run_command("tools", cwd=tmp_path)
    head, *lines = done.out.splitlines()
    assert done.status == 0
    assert head.split() == ["SERVER", "TOOL", "READ-ONLY", "CHARACTERS", "≈TOKENS"]
    assert [line.split()[0] for line in lines] == ["demo/basics"] * 4 + ["demo/workshop"] * 4
    assert lines[1].split()[:6] == ["demo/basics", "add(a:", "num,", "b:", "num)", "yes"]
    assert "8 tools, ≈" in done.err


def test_one_server_one_tool_and_whole_definitions(tmp_path: Path) -> None:
    server = run_command("tools", "demo/workshop", cwd=tmp_path)
    assert "slow(seconds?: num(0..60), steps?: int(1..100))  " in server.out
    assert "echo" not in server.out
    tool = run_command("tools", "demo/workshop/convert_units", cwd=tmp_path)
    row, *_, signature = tool.out.splitlines()[1:]
    assert row.split("  ")[1].startswith('convert_units(value: num, unit: "m"|"km"|')
    assert row.split("  ")[1].endswith("…")
    units = '"m"|"km"|"ft"|"mi"|"kg"|"lb"|"celsius"|"fahrenheit"|"kelvin"'
    assert signature == f"convert_units(value: num, unit: {units}, to: {units})"
    whole = run_command("tools", "demo/basics/add", "--schema", cwd=tmp_path)
    assert whole.data[0]["inputSchema"]["required"] == ["a", "b"]


def test_json_carries_the_definition(tmp_path: Path) -> None:
    done = run_command("--json", "tools", "demo/basics/echo", cwd=tmp_path)
    (tool,) = done.data["tools"]
    assert (tool["toolbox"], tool["server"], tool["tool"]) == ("demo", "basics", "echo")
    assert tool["readOnly"] is True
    assert tool["definition"]["title"] == "Echo"
    assert (done.err, done.data["unavailable"]) == ("", [])


@pytest.mark.parametrize(
    ("which", "text"),
    [
        ("dmeo", "Toolbox 'dmeo' not found\n  Did you mean 'demo'?"),
        ("demo/basic", "Server 'basic' not found in toolbox 'demo'\n  Did you mean 'basics'?"),
        ("demo/basics/ad", "Tool 'ad' not found in server 'basics' (toolbox 'demo')"),
        ("demo//echo", "Invalid tool identifier: server cannot be empty\n  fix: write TOOLBOX, "),
        ("/basics", "Invalid tool identifier: toolbox cannot be empty\n  fix: write TOOLBOX, "),
        ("/", "Invalid tool identifier: toolbox cannot be empty\n  fix: write TOOLBOX, "),
    ],
)
def test_a_wrong_name_is_told(which: str, text: str, tmp_path: Path) -> None:
    done = run_command("tools", "-q", which, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert f"error: {text}" in done.err


def test_a_filter_hides_and_a_missing_server_is_named(tmp_path: Path) -> None:
    servers = {
        "basics": demo_server(toolFilters=["add"]),
        "gone": {"command": "no-such-command-anywhere"},
    }
    write_config(tmp_path, toolbox("dev", **servers))
    done = run_command("tools", cwd=tmp_path)
    assert done.status == 4
    assert "add(a: num, b: num)" in done.out
    assert "echo" not in done.out
    assert "error: server 'gone' in toolbox 'dev' is not available" in done.err
    assert "\n  fix: mcp-workbench doctor dev/gone\n" in done.err
    assert "\n  fix: mcp-workbench doctor dev/gone\n" in run_command("cost", cwd=tmp_path).err
    hidden = run_command("tools", "dev/basics/echo", cwd=tmp_path)
    assert hidden.status == 2
    assert "Tool 'echo' not found" in hidden.err
    assert "Did you mean" not in hidden.err
