"""The tour: what `make run` shows to a newcomer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from mcp_workbench.cli import tour as tour_module
from mcp_workbench.cli.tour import end_child
from tests.kit.command import TIMEOUT, Done, environ, run_command
from tests.kit.config import write_config


class Tour(NamedTuple):
    """One that was taken, and where."""

    done: Done
    folder: Path


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Tour:
    folder = tmp_path_factory.mktemp("tour")
    return Tour(run_command("tour", cwd=folder), folder)


def test_the_tour_shows_a_real_session(tour: Tour) -> None:
    done = tour.done
    assert (done.status, done.err) == (0, "")
    for told in (
        "Use\n   │ `open_toolbox` to connect to a toolbox",
        '→ open_toolbox {"toolbox_name": "demo"}',
        "← 2 servers connected, 8 tools",
        '"arguments": {"a": 2, "b": 3}}\n   ← 5\n',
        "← progress: step 3 of 3\n   ← finished 3 steps in 0.6 seconds",
        "← error: Toolbox 'dmeo' not found / Did you mean 'demo'?",
        "in tokens (an estimate)",
        "check --connect",
    ):
        assert told in done.out
    lines = done.out.splitlines()
    assert len(lines) <= 80
    paths = (str(tour.folder), sys.prefix)  # of whoever runs it, and of any length
    assert [line for line in lines if len(line) > 90 and not any(p in line for p in paths)] == []


def test_what_it_says_to_paste_is_right(tour: Tour) -> None:
    out = tour.done.out
    entry = json.loads(out[out.rindex('{"mcpServers"') :])["mcpServers"]["workbench"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["serve", "--config", str(tour.folder / "workbench-config.json")]


def test_it_ends_with_the_commands_that_come_next(tour: Tour, tmp_path: Path) -> None:
    end = tour.done.out.partition("With your own servers")[2].splitlines()
    steps = [line.split("mcp-workbench ")[1].split("   ")[0] for line in end[1:5]]
    assert steps == ["import", "add time -- uvx mcp-server-time", "check --connect", "install HOST"]
    for command in ("import", "add", "check", "install"):
        assert run_command(command, "--help", cwd=tmp_path).status == 0


def test_it_shows_the_demo_whatever_is_configured(tmp_path: Path) -> None:
    file = write_config(tmp_path, {"toolboxes": 7})
    own = tmp_path / "mcp-workbench" / "config.json"
    own.parent.mkdir()
    own.write_text("nothing")
    done = run_command(
        "tour", cwd=tmp_path, WORKBENCH_CONFIG=str(file), XDG_CONFIG_HOME=str(tmp_path)
    )
    assert done.status == 0
    assert "demo (2 servers)" in done.out


def tour_with(python: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The tour of an installation whose Python is this program."""
    script = (
        "import sys; from mcp_workbench.cli import commands, tour; tour.POLITE = 0.2; "
        f"sys.executable = {str(python)!r}; sys.exit(commands.run(['tour']))"
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=cwd, env=environ(), capture_output=True, text=True, timeout=TIMEOUT
    )


def program(folder: Path, text: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


def test_a_tour_that_breaks_off_says_why(tmp_path: Path) -> None:
    done = tour_with(program(tmp_path, "echo 'no module of that name' >&2; exit 1"), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the tour broke off: the workbench has ended")
    assert "\n  no module of that name\n" in done.stderr
    assert "WB-TOUR-401" in done.stderr
    missing = tour_with(tmp_path / "gone", tmp_path)
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: the tour broke off: ")


def test_a_tour_leaves_nobody_behind(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    done = tour_with(program(tmp_path, f"echo $$ > {pid}; echo nonsense; exec sleep 60"), tmp_path)
    assert done.returncode == 1
    assert "something that is not JSON-RPC" in done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(("then", "status"), [("sys.stdin.read()", 0), ("time.sleep(999)", -9)])
def test_its_workbench_exits_at_the_end_of_its_input_or_is_killed(
    monkeypatch: pytest.MonkeyPatch, then: str, status: int
) -> None:
    if status:
        monkeypatch.setattr(tour_module, "POLITE", 0.05)
    script = f"import sys, time; print('runs', flush=True); {then}"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == b"runs\n"

        end_child(child)

    assert child.returncode == status
