"""Commands use the running workbench: no server is started twice, and `status` shows them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from tests.kit.clock import PATIENCE, eventually
from tests.kit.config import config_file, entry, program_entry, write_config
from tests.kit.forked import Fork, start
from tests.kit.processes import let_through, pids_in
from tests.kit.servers import ASKER
from tests.kit.shared import SHORT, Shared, shared
from tests.kit.terminal import terminal

pytestmark = pytest.mark.usefixtures("forked_commands")


def noted(pids: Path, *flags: str, **more: Any) -> dict[str, Any]:
    return entry(*flags, env={"PIDFILE": str(pids)}, **more)


def started(bench: Shared, *words: str) -> Fork | subprocess.Popen[bytes]:
    """A command that goes on."""
    argv = [*words, "--config", str(bench.config)]
    return start(argv, cwd=None, env={**os.environ, **bench.env})


def test_call_tools_search_and_check_start_no_server_twice(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with shared(config_file(tmp_path, {"a": noted(pids)})) as bench:
        called = bench.done("call", "dev/a/echo", "text=hi", "--json")
        listed = bench.json("tools", "--refresh")
        found = bench.json("search", "echo")
        checked = bench.json("check", "--connect")
        cost = bench.run("cost", "--refresh")

        assert json.loads(json.loads(called)["content"][0]["text"])["arguments"] == {"text": "hi"}
        assert "echo" in [tool["tool"] for tool in listed["tools"]]
        assert [server["state"] for server in listed["servers"]] == ["ready"]
        assert found["tools"][0]["tool"] == "echo"
        assert checked["servers"][0]["available"] is True
        assert cost.returncode == 0
        assert len(pids_in(pids)) == 1
        assert bench.server("a")["connections"] == 1
        eventually(lambda: not bench.status()["hosts"], "the commands are gone")


def test_without_a_workbench_and_on_request_they_start_their_own(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    config = config_file(tmp_path, {"a": noted(pids)})
    with shared(config) as bench:
        bench.done("call", "dev/a/echo", "text=hi", "--attach", "never")
        assert bench.server("a")["connections"] == 0
        bench.done("tools", "--refresh", "--json", MCP_WORKBENCH_TOOLS_ATTACH="never")
        assert bench.server("a")["connections"] == 0
        assert len(pids_in(pids)) == 2
    bench.done("call", "dev/a/echo", "text=hi")
    assert len(pids_in(pids)) == 3


def test_a_call_is_a_host_in_status_and_ctrl_c_cancels_it(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        process = started(bench, "call", "dev/a/hold", "key=k")
        eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")

        [host] = bench.status()["hosts"]
        assert (host["name"], host["pid"]) == ("mcp-workbench call", process.pid)
        assert host["callsInFlight"] == 1
        assert f"mcp-workbench call (pid {process.pid})" in bench.done("status")

        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == (b"", b"")
        assert process.returncode == 130
        eventually(lambda: bench.server("a")["callsInFlight"] == 0, "the server was told")
        eventually(lambda: not bench.status()["hosts"], "the command is gone")
        stats = json.loads(bench.done("call", "dev/a/stats"))
        assert len(stats["cancelled"]) == 1


def test_progress_and_large_results_arrive(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry("stderr=0")})) as bench:
        done = bench.run("call", "dev/a/progress", "n:=3")
        assert (done.returncode, done.stdout.strip()) == (0, "3")

        large = bench.run("call", "dev/a/big", "n:=12000000", "--json")
        assert large.returncode == 0
        assert len(large.stdout) > 12_000_000


def test_failures_are_those_of_a_command_alone(tmp_path: Path) -> None:
    servers = {"a": entry(), "bad": {"command": "/no/such/program"}}
    config = config_file(tmp_path, servers)
    wrong = [
        ("call", "dev/a/nope"),
        ("call", "dev/x/y"),
        ("call", "dev/a/error", 'error={"code":-5,"message":"no","data":[1]}'),
        ("call", "dev/bad/x", "--refresh"),
        ("call", "dev/a/echo", "text=hi", "--refresh", "--input", "[]"),
        ("search", "echo", "--server", "x"),
    ]
    alone = Shared(config)
    own = [alone.run(*words, "--json") for words in wrong]
    with shared(config) as bench:
        joined = [bench.run(*words, "--json") for words in wrong]
        assert bench.server("a")["connections"] == 1
    for one, other in zip(own, joined, strict=True):
        assert (one.returncode, one.stdout, one.stderr) == (
            other.returncode,
            other.stdout,
            other.stderr,
        )


def test_a_server_that_failed_is_tried_again_on_request(tmp_path: Path) -> None:
    works = tmp_path / "works"
    server = entry()
    script = tmp_path / "server.sh"
    script.write_text(
        f'#!/bin/sh\n[ -e {works} ] || exit 1\nexec {quote(server["command"])} "$@"\n'
    )
    script.chmod(0o755)
    with shared(config_file(tmp_path, {"a": {**server, "command": str(script)}})) as bench:
        for _ in range(6):
            assert bench.run("call", "dev/a/echo", "text=hi").returncode == 4
        assert bench.server("a")["state"] == "broken"
        works.touch()

        assert bench.run("call", "dev/a/echo", "text=hi", "--refresh").returncode == 0


@pytest.mark.parametrize("more", [{"era": "modern"}, {"era": "legacy", "scope": "session"}])
def test_what_a_server_asks_is_asked_on_the_terminal(tmp_path: Path, more: dict[str, Any]) -> None:
    with shared(config_file(tmp_path, {"a": program_entry(ASKER, **more)})) as bench:
        env = {**os.environ, **bench.env, "TERM": "xterm"}
        words = ("call", "dev/a/name", "--config", str(bench.config))
        with terminal(*words, cwd=tmp_path, env=env) as screen:
            screen.expect("Your name?")
            assert [host["name"] for host in bench.status()["hosts"]] == ["mcp-workbench call"]
            screen.expect("name: ")
            screen.type("Ada\n")
            screen.expect("[Y/n] ")
            screen.type("\n")
            assert screen.rest() == 0
        assert '"Ada"' in screen.screen.splitlines()[-1]


def test_nobody_is_asked_without_a_terminal(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": program_entry(ASKER, era="modern")})
    alone = Shared(config).run("call", "dev/a/name")
    with shared(config) as bench:
        joined = bench.run("call", "dev/a/name")
    assert (alone.returncode, alone.stdout, alone.stderr) == (
        joined.returncode,
        joined.stdout,
        joined.stderr,
    )


def test_a_server_of_the_hosts_folder_is_the_commands_own(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with shared(config_file(tmp_path, {"a": noted(pids, scope="folder")})) as bench:
        bench.done("call", "dev/a/echo", "text=hi")
        eventually(lambda: not bench.status()["hosts"], "the command is gone")
        eventually(lambda: not bench.server("a")["pids"], "its server, too")
        assert len(pids_in(pids)) == 1


def test_what_the_file_says_now_counts(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    with shared(config) as bench:
        write_config(tmp_path, json.loads(config.read_text()) | _with(config, "b", entry()))

        done = bench.run("call", "dev/b/echo", "text=hi")

        assert (done.returncode, done.stderr) == (0, "")
        assert bench.server("b")["connections"] == 1


def _with(config: Path, name: str, server: dict[str, Any]) -> dict[str, Any]:
    whole = json.loads(config.read_text())
    whole["toolboxes"]["dev"]["mcpServers"][name] = server
    return whole


def test_another_value_of_a_variable_is_told_and_servers_are_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = noted(pids)
    server["env"]["TOKEN"] = "${WB_TOKEN:-none}"
    with shared(config_file(tmp_path, {"a": server})) as bench:
        done = bench.run("call", "dev/a/echo", "text=hi", WB_TOKEN="other")

        assert done.returncode == 0
        assert done.stderr == (
            "mcp-workbench: the shared workbench is not used: variables have another value here: "
            "WB_TOKEN; this command starts servers of its own\n"
        )
        assert bench.server("a")["connections"] == 0


def test_a_workbench_that_hangs_does_not_hold_a_command_up(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        os.kill(bench.pid, signal.SIGSTOP)
        try:
            done = bench.run("call", "dev/a/echo", "text=hi", **SHORT)
        finally:
            os.kill(bench.pid, signal.SIGCONT)
        assert done.returncode == 0
        assert "the shared workbench is not used: it has not answered for" in done.stderr


def test_down_lets_a_call_finish(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        process = started(bench, "call", "dev/a/wait_at", f"gate={gate}")
        eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")
        down = started(bench, "down")
        eventually(lambda: bench.status()["isEnding"], "it is ending")

        eventually(lambda: let_through(gate), "the server answers")

        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, b'"through"\n', b"")
        assert down.wait(PATIENCE) == 0
        down.communicate()


def test_a_call_whose_workbench_is_killed_says_that_it_may_have_run(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench:
        process = started(bench, "call", "dev/a/hold", "key=k")
        eventually(lambda: bench.server("a")["callsInFlight"] == 1, "it is under way")

        os.kill(bench.pid, signal.SIGKILL)

        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert (
            "error: [dev/a/hold] Error: the shared workbench has ended; the call may have run"
            in err.decode()
        )


def test_a_list_is_read_all_the_same_if_the_workbench_is_killed(tmp_path: Path) -> None:
    """The server waits at its gate, so that the kill comes while the command waits for it."""
    gate = tmp_path / "gate"
    server = entry()
    script = tmp_path / "server.sh"
    script.write_text(
        f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\nexec {quote(server["command"])} "$@"\n'
    )
    script.chmod(0o755)
    with shared(config_file(tmp_path, {"a": {**server, "command": str(script)}})) as bench:
        process = started(bench, "tools", "--refresh", "--json")
        eventually(lambda: bench.server("a")["state"] == "starting", "it is being started")

        os.kill(bench.pid, signal.SIGKILL)
        gate.touch()

        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert (
            "the shared workbench has ended; this command starts servers of its own" in err.decode()
        )
        assert "echo" in [tool["tool"] for tool in json.loads(out)["tools"]]
