"""The command as a whole: help, usage, streams, and the screen for the curious."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench import __version__
from tests.kit.command import COMMAND, TIMEOUT, environ, run_command
from tests.kit.config import demo_server, toolbox, write_config

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
HELLO_PARAMS = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


def test_help_names_every_command(tmp_path: Path) -> None:
    done = run_command("--help", cwd=tmp_path)
    assert done.status == 0
    for command in (
        "serve", "import", "check", "install", "uninstall", "undo", "tools", "call", "tour", "explain",
        "schema", "version",
    ):  # fmt: skip
        assert f"\n  {command} " in done.out
        own = run_command(command, "--help", cwd=tmp_path)
        assert own.status == 0
        assert "--config PATH" in own.out


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["checc"], "error: no such command 'checc'\n  Did you mean 'check'?\n"),
        (["xyzzy"], "error: no such command 'xyzzy'\n  fix: mcp-workbench --help"),
        (["check", "--conect"], "error: no such option '--conect'"),
        (
            ["call"],
            "error: missing argument 'TOOLBOX/SERVER/TOOL'\n  fix: mcp-workbench call --help\n",
        ),
        (
            ["--config"],
            "error: option '--config' requires an argument\n  fix: mcp-workbench --help\n",
        ),
        (
            ["search", "--limit"],
            "error: option '--limit' requires an argument\n  fix: mcp-workbench search --help\n",
        ),
        (
            ["--config", "call", "serve", "--http"],
            "error: option '--http' requires an argument\n  fix: mcp-workbench serve --help\n",
        ),
        (
            ["serve", "--toolbox", "dmeo"],
            "error: Toolbox 'dmeo' not found\n  Did you mean 'demo'?\n",
        ),
        (["serve", "--config", "gone.json"], "error: there is no such file"),
        (["serve", "--bogus"], "error: no such option '--bogus'"),
    ],
)
def test_wrong_usage_is_status_2_and_says_what_to_do(
    argv: list[str], text: str, tmp_path: Path
) -> None:
    done = run_command(*argv, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(text)


def test_wrong_usage_as_json(tmp_path: Path) -> None:
    done = run_command("--json", "checc", cwd=tmp_path)
    assert done.status == 2
    assert done.failure["code"] == "WB-CLI-001"
    assert done.failure["fix"] == "Did you mean 'check'?"


@pytest.mark.parametrize("argv", [["version"], ["--version"], ["-q", "version"]])
def test_the_version_is_the_package_s(argv: list[str], tmp_path: Path) -> None:
    assert run_command(*argv, cwd=tmp_path).out == f"mcp-workbench {__version__}\n"


def test_schema_and_version_as_json(tmp_path: Path) -> None:
    assert run_command("schema", cwd=tmp_path).data["type"] == "object"
    assert run_command("version", "--json", cwd=tmp_path).data == {"version": __version__}


@pytest.mark.parametrize("argv", [[], ["serve"], ["serve", "-v"], ["--no-color"]])
def test_stdin_that_is_no_terminal_is_served(argv: list[str], tmp_path: Path) -> None:
    done = run_command(
        *argv, cwd=tmp_path, stdin=json.dumps(HELLO | {"params": HELLO_PARAMS}) + "\n"
    )
    assert done.status == 0
    assert done.data["result"]["serverInfo"]["version"] == __version__


def test_serving_is_silent_about_doubts_unless_asked(tmp_path: Path) -> None:
    write_config(tmp_path, {"mcpServers": {"a": {"command": "true", "cmd": "true"}}})
    quiet = run_command("serve", cwd=tmp_path)
    assert quiet == (0, "", "")
    told = run_command("serve", "-v", cwd=tmp_path)
    assert (told.status, told.out) == (0, "")
    assert "warning: unknown key, it has no effect" in told.err
    assert "'cmd' (Goose's spelling) is 'command' here" in told.err


def test_signs_fall_back_to_words_where_the_encoding_has_none(tmp_path: Path) -> None:
    done = run_command("check", "--connect", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.status == 0
    assert done.out.startswith("ok no configuration file")
    tools = run_command("tools", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert "~TOKENS" in tools.out


def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as broken:
        done = subprocess.run(
            [*COMMAND, "schema"],
            cwd=tmp_path,
            env=environ(),
            stdout=broken,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_argument_that_is_no_text_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [os.fsencode(word) for word in COMMAND] + [b"call", b"demo/basics/echo", b"text=\xff"],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: an argument is not UTF-8 text\n")


@pytest.mark.parametrize(
    ("argv", "unwanted"),
    [
        (["--help"], {"msgspec", "asyncio", "uvloop"}),
        (["check"], {"asyncio", "uvloop"}),
        (["explain"], {"asyncio", "uvloop"}),
        (["schema"], {"asyncio", "uvloop"}),
    ],
)
def test_a_command_loads_what_it_needs(argv: list[str], unwanted: set[str], tmp_path: Path) -> None:
    write_config(tmp_path, toolbox("demo", basics=demo_server()))
    script = (
        f"import sys; from mcp_workbench.cli.commands import run; run({argv}); "
        f"sys.exit(', '.join({unwanted} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
    )
    assert done.stderr.strip() == ""
