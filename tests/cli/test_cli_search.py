"""`search` shows a person what an agent would get."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.cli import tools
from mcp_workbench.server import own_definitions
from tests.kit.command import run_command
from tests.kit.config import demo_server, entry, toolbox, write_config


def test_the_best_tools_come_first_as_signatures(tmp_path: Path) -> None:
    done = run_command("search", "add", "two", "numbers", "--limit", "1", cwd=tmp_path)

    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[:3] == [
        "1 of 8 tools, under # toolbox/server; call with use_tool",
        "# demo/basics",
        "add(a: num, b: num) - Adds two numbers.",
    ]
    assert "also in demo/basics: echo, now, fail" in done.out


def test_a_tool_is_described_by_its_name(tmp_path: Path) -> None:
    full = run_command("search", "demo/basics/add", "--detail", "full", cwd=tmp_path)
    names = run_command(
        "search", "add numbers", "--detail", "names", "--server", "basics", cwd=tmp_path
    )

    assert "add(a: num, b: num)\n  Adds two numbers.\n  a: One\n" in full.out
    head, first, *_ = names.out.splitlines()
    assert head.endswith(" of 4 tools, behind toolbox/server; call with use_tool")
    assert first.startswith("demo/basics: add")


def test_nothing_that_fits_is_a_status_of_its_own(tmp_path: Path) -> None:
    done = run_command("search", "zebra", cwd=tmp_path)

    assert done.status == 1
    assert (
        done.out
        == "No tool fits, of 8 tools that are known. None has: zebra. The tools are described in English: try other English words. Toolboxes: demo\n"
    )


def test_the_ranking_is_data_too(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(good=demo_server(), dead={"command": "false"}))

    done = run_command("--json", "search", "add", "zebra", cwd=tmp_path)

    assert done.data["tools"][0]["tool"] == "add"
    assert done.data["tools"][0]["score"] > 0
    assert (done.data["strange_words"], done.data["not_read"]) == (["zebra"], ["dev/dead"])
    assert done.data["looked_at"] == 4


def test_every_server_is_read_and_one_that_is_too_slow_is_named(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)  # that nobody opens
    slow = {"discover": "lazy", "mcpServers": {"slow": entry(f"gate={gate}")}}
    boxes = {"dev": {"discover": "lazy", "mcpServers": {"good": demo_server()}}, "ops": slow}
    write_config(tmp_path, {"toolboxes": boxes})
    read = run_command("search", "add", "--toolbox", "dev", cwd=tmp_path)
    write_config(tmp_path, {"toolboxes": boxes, "limits": {"openWait": 0.5}})
    late = run_command("search", "add", cwd=tmp_path)
    alone = run_command("search", "add", "--toolbox", "ops", cwd=tmp_path)

    slow_one = "not available: ops/slow (no answer within 0.5 s)"
    assert read.out.startswith("1 of 4 tools")
    assert late.out == f"{read.out}{slow_one}\n"
    assert (alone.status, alone.out) == (
        1,
        f"No tools are known yet. Toolboxes: dev, ops\n{slow_one}\n",
    )


def test_a_misspelt_word_is_searched_for_by_close_ones(tmp_path: Path) -> None:
    done = run_command("search", "ad two nmbers", "--limit", "1", cwd=tmp_path)
    data = run_command("--json", "search", "nmbers", cwd=tmp_path).data

    assert "add(a: num, b: num) - Adds two numbers." in done.out
    assert "in no tool: ad, nmbers (searched for numbers)" in done.out
    assert data["close_words"] == {"nmbers": ["numbers"]}
    assert data["tools"][0]["tool"] == "add"


@pytest.mark.parametrize("words", ["add", "demo/basics/add"])
def test_whoever_is_called_by_name_scores_as_well_as_any(tmp_path: Path, words: str) -> None:
    tools = run_command("--json", "search", words, cwd=tmp_path).data["tools"]

    scores = [one["score"] for one in tools]
    assert tools[0]["tool"] == "add"
    assert scores[0] > 0
    assert scores == sorted(scores, reverse=True)


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run_command("search", "add", "--toolbox", "demp", cwd=tmp_path)

    assert done.status == 2
    assert "Toolbox 'demp' not found" in done.err
    assert "Did you mean 'demo'?" in done.err


def test_a_person_may_ask_for_as_many_tools_as_an_agent() -> None:
    assert tools.MOST_HITS == own_definitions.MOST_HITS
