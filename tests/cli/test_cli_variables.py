"""Options that are not given may come from variables, which `--help` names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kit.command import run_command
from tests.kit.config import demo_server, toolbox, write_config

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


def test_json_and_quiet_by_variable(tmp_path: Path) -> None:
    done = run_command("check", cwd=tmp_path, MCP_WORKBENCH_JSON="1")
    assert done.data["ok"] is True
    wrong = run_command("checc", cwd=tmp_path, MCP_WORKBENCH_JSON="true")
    assert wrong.failure["code"] == "WB-CLI-001"
    assert run_command("tools", cwd=tmp_path, MCP_WORKBENCH_QUIET="yes").err == ""
    assert run_command("check", cwd=tmp_path, MCP_WORKBENCH_JSON="0").out.startswith("✔")


def test_an_option_of_a_command_by_variable(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(gone={"command": "no-such-command"}))
    assert run_command("check", cwd=tmp_path).status == 0
    assert run_command("check", cwd=tmp_path, MCP_WORKBENCH_CHECK_CONNECT="1").status == 4


def test_serving_heeds_its_variables_on_every_way_in(tmp_path: Path) -> None:
    config = toolbox("dev", a=demo_server())
    config["toolboxes"]["ops"] = {"mcpServers": {"b": demo_server()}}
    write_config(tmp_path, config)
    for argv in ([], ["serve"]):
        told = run_command(
            *argv, cwd=tmp_path, stdin=json.dumps(HELLO) + "\n", MCP_WORKBENCH_SERVE_TOOLBOX="ops"
        )
        assert "ops (1 server)" in told.data["result"]["instructions"]
        assert "dev (1 server)" not in told.data["result"]["instructions"]
    wrong = run_command("serve", cwd=tmp_path, MCP_WORKBENCH_SERVE_HTTP="bogus")
    assert (wrong.status, "is not [HOST:]PORT" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "check",
        "tools",
        "call",
        "cost",
        "doctor",
        "tour",
        "explain",
        "completion",
        "import",
        "install",
        "uninstall",
        "undo",
    ],
)
def test_help_names_the_variable_of_every_option_and_an_example(
    command: str, tmp_path: Path
) -> None:
    text = run_command(command, "--help", cwd=tmp_path).out
    listed = re.split(r"\n  (?=-)", text.split("Options:\n")[1])
    options = [" ".join(option.split()) for option in listed]
    plain = {"--input", "--help"}  # arguments of one call, and this text itself
    unnamed = [o.split()[0] for o in options if "[env var:" not in o and not plain & set(o.split())]
    assert unnamed == []
    assert re.search(rf"Examples?:\n    +mcp-workbench {command}", text)
