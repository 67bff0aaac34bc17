"""What a person at a terminal sees."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from shlex import quote

import pytest

from mcp_workbench import __version__
from mcp_workbench.config.load import DEMO_NOTICE
from tests.kit.command import run_command
from tests.kit.config import demo_server, toolbox, write_config

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

from tests.kit.terminal import terminal

pytestmark = pytest.mark.usefixtures("forked_commands")


def on_terminal(*argv: str, cwd: Path, **variables: str) -> tuple[int, str]:
    """Status and screen of a run with all streams on a terminal."""
    with terminal(*argv, cwd=cwd, variables=variables) as run:
        status = run.rest()
    return status, run.screen


def left(screen: str) -> str:
    """What is on the screen in the end, below the notice of the demo: a clock has been erased."""
    assert screen.startswith(DEMO_NOTICE)
    return re.sub(r"[^\n]*\x1b\[2K", "", screen.removeprefix(DEMO_NOTICE).lstrip("\r\n"))


def test_a_terminal_gets_a_short_screen(tmp_path: Path) -> None:
    status, screen = on_terminal(cwd=tmp_path)
    assert status == 0
    assert screen.startswith(
        f"MCP Workbench {__version__}   no configuration file was found: the built-in demo"
    )
    write_config(tmp_path, toolbox(a=demo_server(), b=demo_server()))
    _, screen = on_terminal(cwd=tmp_path)
    assert "config workbench-config.json: 1 toolbox, 2 servers" in screen
    write_config(tmp_path, {"toolboxes": 7})
    status, screen = on_terminal(cwd=tmp_path)
    assert status == 0
    assert "config workbench-config.json: 1 problem, see mcp-workbench check" in screen


def test_colour_is_for_terminals_and_for_those_who_want_it(tmp_path: Path) -> None:
    red = "\x1b[31m"
    assert red in on_terminal("checc", cwd=tmp_path)[1]
    assert "\x1b" not in on_terminal("checc", "--no-color", cwd=tmp_path)[1]
    assert "\x1b" not in on_terminal("checc", cwd=tmp_path, NO_COLOR="1")[1]
    assert "\x1b" not in run_command("checc", cwd=tmp_path).err
    assert red in run_command("checc", cwd=tmp_path, FORCE_COLOR="1").err


@pytest.mark.parametrize("columns", [60, 100])
def test_the_list_of_tools_fits_on_the_screen(tmp_path: Path, columns: int) -> None:
    run_command("tools", cwd=tmp_path)  # they are known now
    with terminal("tools", "-q", cwd=tmp_path, columns=columns) as run:
        assert run.rest() == 0
    lines = run.screen.splitlines()
    assert len(lines) == 9
    assert max(map(len, lines)) == columns
    assert lines[2].split()[1:3] == ["add(a:", "num,"]


def test_a_slow_call_shows_one_line_and_erases_it(tmp_path: Path) -> None:
    status, screen = on_terminal(
        "call", "demo/workshop/slow", "seconds:=1.2", "steps:=3", cwd=tmp_path
    )
    assert status == 0
    assert f"\x1b[2K{'━' * 20} 3/3 step 3 of 3" in screen
    assert screen.endswith("\x1b[2Kfinished 3 steps in 1.2 seconds\n")


def test_a_terminal_never_obeys_a_tool(tmp_path: Path) -> None:
    _, screen = on_terminal("call", "demo/basics/echo", "text=a\x1b[2Jb\nc", cwd=tmp_path)
    assert left(screen) == "a\\x1b[2Jb\nc\n"
    piped = run_command("call", "demo/basics/echo", "text=a\x1b[2Jb", cwd=tmp_path)
    assert piped.out == "a\x1b[2Jb\n"


def test_a_narrow_terminal_has_no_bar_and_no_line_wraps(tmp_path: Path) -> None:
    slow = ("call", "demo/workshop/slow", "seconds:=1.2", "steps:=3")
    with terminal(*slow, cwd=tmp_path, columns=16) as screen:
        assert screen.rest() == 0
    assert "━" not in screen.screen
    assert "\x1b[2K2/3 step 2 of \r" in screen.screen  # cut: a line that wraps can't be erased
    with terminal("-q", *slow, cwd=tmp_path) as silent:
        assert silent.rest() == 0
    assert silent.screen == "finished 3 steps in 1.2 seconds\n"


def test_a_long_remedy_is_broken_where_the_terminal_ends(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(gone={"command": "no-such-command-anywhere"}))
    state = {"MCP_WORKBENCH_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}
    with terminal("doctor", cwd=tmp_path, columns=60, variables=state) as screen:
        assert screen.rest() == 4
    text = screen.screen.rpartition("\x1b[2K")[2]
    assert "✘ dev/gone      command not found: no-such-command-anywhere\n" in text
    assert "                fix: install no-such-command-anywhere, or\n" in text
    assert "                write its absolute path\n" in text
    assert "\x1b" not in text


def test_doctor_says_whom_it_waits_for(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    sleepy = {"command": "sh", "args": ["-c", f"until [ -e {gate} ]; do sleep 0.02; done; exit 1"]}
    write_config(tmp_path, toolbox(sleepy=sleepy))
    state = {"MCP_WORKBENCH_HOME": str(tmp_path / "state")}
    with terminal("doctor", cwd=tmp_path, variables=state) as screen:
        screen.expect("✔")
        screen.expect("waiting for dev/sleepy")
        gate.touch()
        assert screen.rest() == 4
    assert "\x1b[32m✔" in screen.screen


def test_a_server_that_takes_its_time_is_waited_for_in_sight(tmp_path: Path) -> None:
    """Until something is heard of it, a clock goes on; then nothing of that is left."""
    slow = {
        "command": "sh",
        "args": ["-c", f"sleep 2.5; exec {quote(sys.executable)} -m mcp_workbench.demo basics"],
    }
    write_config(tmp_path, toolbox(slow=slow))
    with terminal("call", "dev/slow/add", "a:=2", "b:=2", cwd=tmp_path) as person:
        person.expect("waiting for dev/slow to start, 1 s")
        person.expect("waiting for dev/slow to start, 2 s")
        assert person.rest() == 0
    assert person.screen.endswith("\r\x1b[2K4\n")


def test_a_server_that_is_not_there_is_told_once_and_with_its_remedy(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(gone={"command": "no-such-command-anywhere"}))
    status, screen = on_terminal("call", "dev/gone/x", cwd=tmp_path)
    assert status == 4
    assert screen.count("command not found") == 1
    assert "  fix: mcp-workbench doctor dev/gone\n" in screen


def test_a_tool_that_failed_says_so_on_a_terminal(tmp_path: Path) -> None:
    status, screen = on_terminal("call", "demo/basics/fail", "reason=no paper", cwd=tmp_path)
    assert status == 5
    assert left(screen).startswith("no paper\n")
    assert "the tool says that it failed" in screen


def test_ctrl_c_leaves_the_cursor_on_a_line_of_its_own(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(workshop=demo_server("workshop")))
    with terminal("call", "dev/workshop/slow", "seconds:=60", "steps:=100", cwd=tmp_path) as run:
        run.expect("/100 step ")
        run.type("\x03")
        assert run.rest() == 130
    assert run.screen.endswith("\n")


def test_serve_on_a_terminal_says_what_it_waits_for(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(basics=demo_server()))
    with terminal("serve", cwd=tmp_path) as run:
        run.expect("waiting for messages of an MCP host on stdin")
        run.expect("mcp-workbench install HOST")
        run.expect("Ctrl-C or Ctrl-D ends it.\n")
        run.type("\x03")
        assert run.rest() == 130
    assert run.screen.endswith("\n")
    assert "waiting" not in on_terminal("serve", "--quiet", "--toolbox", "no", cwd=tmp_path)[1]
