"""`tools` shows what there is, asked from the servers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from unicodedata import east_asian_width

import pytest

from mcp_workbench.cli.tools import tool_lines
from mcp_workbench.core.catalogue import ToolInfo
from tests.kit.command import run_command
from tests.kit.config import demo_server, entry, toolbox, write_config


def test_every_tool_is_a_line_with_its_cost(tmp_path: Path) -> None:
    done = run_command("tools", cwd=tmp_path)
    head, *lines = done.out.splitlines()
    assert done.status == 0
    assert head.split() == ["SERVER", "TOOL", "READ-ONLY", "≈TOKENS", "DESCRIPTION"]
    assert [line.split()[0] for line in lines] == ["demo/basics"] * 4 + ["demo/workshop"] * 4
    assert lines[1].split()[:6] == ["demo/basics", "add(a:", "num,", "b:", "num)", "yes"]
    assert lines[1].endswith("  Adds two numbers.")
    assert "8 tools, ≈ " in done.err


def test_a_tool_costs_the_same_in_all_commands_that_tell_it(tmp_path: Path) -> None:
    listed = run_command("tools", cwd=tmp_path)
    data = run_command("tools", "--json", cwd=tmp_path).data
    cost = run_command("cost", "--json", cwd=tmp_path).data
    direct = cost["everyRequest"]["direct"]
    tour = run_command("tour", cwd=tmp_path).out

    assert sum(tool["tokens"] for tool in data["tools"]) == direct
    assert f"8 tools, ≈ {direct} tokens with each listed directly" in listed.err
    assert f"in every request: ≈ {direct} tokens" in run_command("cost", cwd=tmp_path).out
    assert re.search(rf"every tool listed directly +≈ {direct} ", tour)
    assert re.search(rf"menu and instructions +≈ {cost['everyRequest']['workbench']} ", tour)
    (demo,) = cost["toolboxes"]
    assert f"opening this toolbox, ≈ {demo['opening']['schema']}\n" in tour


def test_thousands_are_written_alike_in_all_commands(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    schema = {"type": "object", "description": "word " * 1500}
    tools.write_text(json.dumps([{"name": "large", "inputSchema": schema}]))
    write_config(tmp_path, toolbox(a=entry(f"tools={tools}")))

    listed, cost = run_command("tools", cwd=tmp_path), run_command("cost", cwd=tmp_path).out

    [figure] = re.findall(r"≈ (1,5\d\d) tokens with each listed directly", listed.err)
    assert f"  {figure}" in listed.out
    assert f"≈ {figure} tokens with each tool listed directly" in cost
    assert re.search(r"listed directly .* ≈ \d,\d00\n", run_command("tour", cwd=tmp_path).out)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_lines_are_as_wide_as_the_terminal(width: int) -> None:
    long = "Opens the door. " + "x" * 200
    infos = [
        tool("read_file", "Reads a file from the disk, whole or in part, in any encoding."),
        tool("ls", "一覧" * 60),
        tool("a_tool_with_a_long_name_that_says_what_it_does_and_how_and_why", long),
    ]

    head, *lines = tool_lines(infos, width)

    assert head.startswith("SERVER  TOOL ")
    assert all(columns(line) <= width for line in lines)
    assert [line.split("(")[0].split()[1][:12] for line in lines] == [
        *("read_file", "ls", "a_tool_with_"),
    ]
    if width >= 80:
        assert "  Reads a file" in lines[0]
        assert lines[1].endswith("一…") or lines[1].endswith("覧…")
        assert max(columns(line) for line in lines) >= width - 1, "all of it is used"
    assert tool_lines(infos, None)[1].endswith(
        "  Reads a file from the disk, whole or in part, in any encoding."
    )


def tool(name: str, description: str) -> ToolInfo:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    definition = {"name": name, "description": description, "inputSchema": schema}
    return ToolInfo(name, "dev", "a", description, schema, definition)


def columns(line: str) -> int:
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in line)


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
