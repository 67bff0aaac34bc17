"""Which program a command means, here and on systems that are not here."""

import os
import subprocess
from pathlib import Path

import pytest

from mcp_workbench.core.spec import StdioCommand
from mcp_workbench.upstream.dial import Unreachable, launch_of
from mcp_workbench.upstream.launch import resolve

WINDOWS = {
    "path_separator": ";",
    "separators": "\\/",
    "endings": ".COM;.EXE;.BAT;.CMD",
}


def on_windows(command: str, *there: str) -> str | None:
    path = r"C:\Windows;;C:\nodejs"
    return resolve(command, path, is_program=set(there).__contains__, **WINDOWS)


@pytest.mark.fault("F46")
def test_npx_is_found_with_the_ending_that_it_has_there() -> None:
    assert on_windows("npx", r"C:\nodejs\npx.cmd") == r"C:\nodejs\npx.cmd"


@pytest.mark.fault("F46")
def test_a_script_for_another_shell_beside_it_is_not_taken_for_it() -> None:
    assert on_windows("npx", r"C:\nodejs\npx", r"C:\nodejs\npx.cmd") == r"C:\nodejs\npx.cmd"


@pytest.mark.fault("F46")
@pytest.mark.parametrize("command", ["node.exe", "NODE.EXE"])
def test_an_ending_that_is_written_is_not_added_again(command: str) -> None:
    assert on_windows(command, rf"C:\Windows\{command}") == rf"C:\Windows\{command}"


@pytest.mark.fault("F46")
@pytest.mark.parametrize("command", [r"C:\tools\run", "C:/tools/run", r".\run"])
def test_a_path_is_completed_and_not_looked_for(command: str) -> None:
    assert on_windows(command, f"{command}.bat") == f"{command}.bat"
    assert on_windows(command, r"C:\nodejs\run.bat") is None


@pytest.mark.fault("F46")
def test_the_first_folder_and_the_first_ending_win() -> None:
    both = (r"C:\Windows\a.cmd", r"C:\Windows\a.exe", r"C:\nodejs\a.com")
    assert on_windows("a", *both) == r"C:\Windows\a.exe"
    assert on_windows("a") is None


def test_here_a_name_is_what_it_is() -> None:
    there = {"/usr/bin/npx", "/opt/x/npx"}
    assert resolve("npx", "/bin::/usr/bin:/opt/x", is_program=there.__contains__) == "/usr/bin/npx"
    assert resolve("/opt/x/npx", "/usr/bin", is_program=there.__contains__) == "/opt/x/npx"
    assert resolve("./npx", "/usr/bin", is_program=there.__contains__) is None


def started(command: str, cwd: str, path: str) -> str:
    """What the program prints that is started for this command."""
    launch = launch_of(StdioCommand(command, cwd=cwd), {"PATH": path})
    done = subprocess.run(
        launch.argv, env=launch.env, cwd=launch.cwd, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(os.name != "posix", reason="programs are files with rights")
def test_the_program_that_is_found_is_the_one_that_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "theirs"):
        program = tmp_path / name / "bin" / "server"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho {name}\n")
        program.chmod(0o755)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "ours")
    theirs, empty = str(tmp_path / "theirs"), str(tmp_path / "empty")

    assert started("server", theirs, "bin:/bin") == "ours"  # PATH is ours
    assert started("server", empty, "bin:/bin") == "ours"
    assert started("server", "", "bin:/bin") == "ours"
    assert started("bin/server", theirs, "/bin") == "theirs"
    assert started("./bin/server", "", "/bin") == "ours"
    with pytest.raises(Unreachable, match="command not found: bin/server"):
        started("bin/server", empty, "/bin")
