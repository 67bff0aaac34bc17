"""`call` asks on its terminal, also if the running workbench makes the call; without a terminal it is denied."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.approvals.scenes import (
    NO,
    ONCE,
    guarded,
    is_denied,
    opened,
    outcomes,
    question,
    reply,
    says,
)
from tests.kit.clock import eventually
from tests.kit.command import run_command
from tests.kit.config import entry, write_config
from tests.kit.results import json_text
from tests.kit.shared import shared

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

from tests.kit.terminal import terminal

WORDS = ("call", "dev/a/echo", "text=hi", "--json")


@pytest.mark.parametrize(
    ("typed", "outcome"), [("y\n", "ok"), ("\n", "denied"), ("\x04", "denied")]
)
def test_the_person_at_the_terminal_decides(tmp_path: Path, typed: str, outcome: str) -> None:
    guarded(tmp_path)
    with terminal(*WORDS, cwd=tmp_path) as screen:
        screen.expect('"mcp-workbench call')
        screen.expect('wants to call the tool "echo" of the server dev/a with these arguments:')
        screen.expect('{"text":"hi"}')
        screen.expect("accept? [y/N]")
        screen.type(typed)
        screen.expect('"content"' if outcome == "ok" else "WB-CALL-204")
        status = screen.rest()

    assert status == (0 if outcome == "ok" else 1)
    assert outcomes(tmp_path) == [("echo", outcome)]


def test_without_a_terminal_it_is_denied(tmp_path: Path) -> None:
    guarded(tmp_path)
    done = run_command(*WORDS, cwd=tmp_path)

    report = json.loads(done.err)
    assert (done.status, done.out) == (1, "")
    assert report["code"] == "WB-CALL-204"
    assert "nobody can be asked: there is no terminal" in report["message"]
    assert "run mcp-workbench call in a terminal" in report["fix"]
    assert outcomes(tmp_path) == [("echo", "denied")]


def test_the_question_of_the_running_workbench_reaches_the_terminal(tmp_path: Path) -> None:
    with shared(guarded(tmp_path)) as bench:
        with terminal(*WORDS, cwd=tmp_path, variables=bench.env) as screen:
            screen.expect('wants to call the tool "echo"')
            screen.expect("accept? [y/N]")
            assert bench.server("a")["connections"] == 1
            screen.type("y\n")
            screen.expect('"content"')
            screen.rest()
        without = bench.run(*WORDS)
        lines = [("echo", "ok"), ("echo", "denied")]
        eventually(lambda: outcomes(tmp_path) == lines, "both are on record")

    assert without.returncode == 1
    assert "nobody can be asked" in without.stderr


def test_a_host_that_has_joined_is_asked(tmp_path: Path) -> None:
    with shared(guarded(tmp_path)) as bench, bench.host() as host:
        opened(host)
        first = host.begin_use("a", "echo", {"text": "x"})
        reply(host, question(host), says(ONCE))
        assert json_text(host.answer(first)["result"])["arguments"] == {"text": "x"}
        second = host.begin_use("a", "echo", {"text": "x"})
        reply(host, question(host), says(NO))
        assert is_denied(host.answer(second)["result"])


def test_check_warns_of_a_pattern_that_matches_no_tool(tmp_path: Path) -> None:
    """One that is inherited must match a tool of any server that has it."""
    servers = {"a": entry(), "b": entry(approve=["ehco", "!slow", "destructive", "resource:x"])}
    boxes = {"dev": {"approve": ["echo", "delet_*"], "mcpServers": servers}}
    write_config(tmp_path, {"toolboxes": boxes})
    done = run_command("check", "--connect", "--json", cwd=tmp_path)

    warnings = [one for one in json.loads(done.out)["problems"] if one["code"] == "WB-TOOL-301"]
    assert [one["message"].partition(" matches")[0] for one in warnings] == [
        "approve: 'delet_*'",
        "approve: 'ehco'",
    ]
