"""The command where the world around it is odd: streams closed, the folder gone, told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from tests.kit import forked
from tests.kit.clock import eventually
from tests.kit.command import COMMAND, TIMEOUT, environ, run_command
from tests.kit.config import entry, toolbox, write_config
from tests.kit.processes import alive, pids_in

if sys.platform == "win32":
    pytest.skip("no shell, no signals as here", allow_module_level=True)

WB = '"$PYTHON" -m mcp_workbench'
CALL = "call demo/basics/echo text=hello"


def in_shell(line: str, cwd: Path) -> tuple[int, str, str]:
    """Status, stdout and stderr of a line of shell."""
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=cwd,
        env=environ(PYTHON=sys.executable),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["serve", "version", "schema", "check", "tools -q", CALL])
def test_a_closed_stream_costs_only_what_it_would_have_shown(
    command: str, closed: str, tmp_path: Path
) -> None:
    write_config(tmp_path, toolbox("demo", basics=entry()))

    status, out, err = in_shell(f"{WB} {command} {closed}", tmp_path)

    assert (status, err) == (0, "")
    assert bool(out) == (">&-" not in closed.split() and command != "serve")


def test_a_folder_that_is_gone_is_no_reason_to_fall_over(tmp_path: Path) -> None:
    file = write_config(tmp_path, {"toolMode": "odd", "mcpServers": {}})
    gone = f"mkdir gone && cd gone && rmdir ../gone && exec {WB} check --config {quote(str(file))}"

    status, out, err = in_shell(gone, tmp_path)

    assert status == 2
    assert "1 error" in out
    assert f"  --> {file}:2:3   toolMode\n" in err


@pytest.mark.usefixtures("short_deadlines", "forked_commands")  # its server never leaves by itself
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", ["tools dev/stubborn", "call dev/stubborn/hang"])
def test_a_command_that_is_told_to_end_leaves_no_server_behind(
    command: str, told: signal.Signals, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    mute = "hang_list" if command.startswith("tools") else "no_eof_exit"
    server = entry("ignore_term", "no_eof_exit", mute, env={"PIDFILE": str(pids)})
    write_config(tmp_path, toolbox("dev", stubborn=server))
    env = environ()
    argv = [*forked.command(env), *command.split()]
    process = subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.PIPE)
    eventually(lambda: len(pids_in(pids)) == 1, "the server runs")

    process.send_signal(told)
    _, err = process.communicate(timeout=TIMEOUT)

    assert (process.returncode, err) == (130, b"")
    eventually(lambda: not alive(pids_in(pids)[0]), "the server is gone")


@pytest.mark.parametrize("command", ["serve", "check"])
def test_ctrl_c_while_the_file_is_read_is_quiet(command: str, tmp_path: Path) -> None:
    pipe = tmp_path / "config"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [*COMMAND, command, "--config", str(pipe)],
        env=environ(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with pipe.open("w"):  # returns when the command has opened it, too
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT)

    assert (process.returncode, err) == (130, b"")


def test_thousands_of_problems_on_one_line_are_all_told(tmp_path: Path) -> None:
    boxes = {f"box {number}": {"mcpServers": {"s": {"cmd": "x"}}} for number in range(5000)}
    write_config(tmp_path, {"toolboxes": boxes})
    file = tmp_path / "workbench-config.json"
    file.write_text(file.read_text("utf-8").replace("\n", " "), "utf-8")

    done = run_command("check", cwd=tmp_path)  # within its bounds: the work grows with the file

    assert done.status == 2
    assert "10000 errors, 5000 warnings" in done.out
    assert done.err.count("WB-CONF-013") == done.err.count("WB-CONF-018") == 5000


def test_the_name_of_a_file_can_not_steer_a_terminal(tmp_path: Path) -> None:
    done = run_command("check", "--config", "a\x1b[2Jb.json", cwd=tmp_path)

    assert done.status == 2
    assert "a\\x1b[2Jb.json" in done.out
    assert "\x1b" not in done.out + done.err


LITTLE = "ulimit -v 1500000"  # KiB: enough for the command, too little for the whole file


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded so on Linux alone")
@pytest.mark.parametrize("file", ["huge.json", "/dev/zero"])
@pytest.mark.parametrize("command", ["check", "tools", "doctor"])
def test_a_file_without_an_end_is_refused_and_not_read_for_its_lines(
    command: str, file: str, tmp_path: Path
) -> None:
    with (tmp_path / "huge.json").open("wb") as huge:
        huge.truncate(3 << 30)  # a hole: it takes no room
    (tmp_path / "huge.json").chmod(0o600)

    status, out, err = in_shell(f"{LITTLE}; exec {WB} {command} --config {file}", tmp_path)

    assert status == 2
    assert "the file is larger than 8 MiB" in out + err
    assert "WB-CONF-005" in out + err
    assert "Traceback" not in err


def test_problems_of_a_file_in_a_pipe_are_told_without_reading_it_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config")
    text = '{"toolMode": "odd", "mcpServers": {}}'
    told = f"printf '%s' '{text}' > config & exec {WB} check --config config"

    status, out, err = in_shell(told, tmp_path)

    assert status == 2
    assert "1 error" in out
    assert "  --> config:1:2   toolMode\n  fix: " in err
