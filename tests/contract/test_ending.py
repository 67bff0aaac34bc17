"""How the command ends when it is told to: what is under way, what comes late, and who insists."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app import DRAIN, FLUSH
from mcp_workbench.transport.detached import VARIABLE
from mcp_workbench.transport.process import FIRM, POLITE
from tests.kit.clock import PATIENCE, eventually, within
from tests.kit.config import config_file, entry
from tests.kit.forked import start
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import PROMISE, alive, children, gone, in_groups, pids_in
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")

CODE = "mcp-workbench/code"
STUBBORN = ("no_eof_exit", "ignore_term")
# How many times a moment of chance is tried; more of them in a long run.
TIMES = int(os.environ.get("WORKBENCH_TEST_ROUNDS", "3"))
GRACE = POLITE + FIRM  # seconds that a server has which does not leave
# Seconds in which we are gone, whatever our servers do. Commands with short deadlines need a tenth
# of it: the rest is for a machine that is busy with something else.
BOUND = DRAIN + GRACE + FLUSH


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def noted(pids: Path, *flags: str, **more: Any) -> dict[str, Any]:
    return entry(*flags, env={"PIDFILE": str(pids)}, **more)


# Starts a server beside a process of the same group that obeys SIGTERM. Which signal has ended that
# one is written down by another, which is in no server's group and is not looked for, and therefore has
# all the time it needs.
WITNESS = """
import os, signal, sys
file, *argv = sys.argv[1:]
group = os.getpgrp()
ready, begun = os.pipe()
if os.fork() == 0:
    os.setpgid(0, 0)
    if (obedient := os.fork()) == 0:
        os.setpgid(0, group)
        os.write(begun, b"x")
        os.closerange(0, 10)
        signal.pause()
    os.closerange(0, 10)
    _, status = os.waitpid(obedient, 0)
    with open(file + ".new", "w") as new:
        new.write(signal.Signals(os.WTERMSIG(status)).name)
    os.rename(file + ".new", file)
    os._exit(0)
os.read(ready, 1)
os.execv(argv[0], argv)
"""


def witnessed(pids: Path, file: Path, *flags: str) -> dict[str, Any]:
    """A server that does not leave at the end of its input; the file will name what has ended it."""
    server = noted(pids, "no_eof_exit", *flags)
    line = ["-E", "-S", "-c", WITNESS, str(file), server["command"], *server["args"]]
    env = {**server["env"], VARIABLE: ""}
    return {**server, "command": sys.executable, "args": line, "env": env}


def ended_by(file: Path) -> str:
    eventually(file.exists, "the group of the server has ended")
    return file.read_text()


def told_to_end(host: PipeHost, number: signal.Signals) -> dict[str, Any]:
    """Send the signal; what a call is answered with that came too late."""
    host.signal(number)
    while True:  # one that is quicker than the signal is served
        late = host.use("free", "echo")
        if late.get("isError"):
            return late


# SIGTERM


@pytest.mark.parametrize("modern", [False, True])
def test_what_is_under_way_ends_and_what_is_new_is_turned_away(
    tmp_path: Path, gate: Path, modern: bool
) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry(), "free": entry()}), modern=modern) as host:
        if not modern:
            host.initialize()
        host.use("free", "echo")
        host.use("a", "echo")
        waiting = host.begin_use("a", "wait_at", {"gate": str(gate)})

        late = told_to_end(host, signal.SIGTERM)
        listed = host.error("tools/list")
        gate.open("w").close()

        assert late["_meta"][CODE] == "draining"
        assert "begins nothing new" in texts(late)[0]
        assert ("resultType" in late) == modern
        assert listed["data"] == {CODE: "draining"}
        assert json_text(host.answer(waiting)["result"]) == "through"
        assert host.ended() == 0  # although its input is still open


def test_a_ping_and_a_cancel_are_heard_to_the_end(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry(), "free": entry()})) as host:
        host.initialize()
        host.use("free", "echo")
        host.use("a", "echo")
        waiting = host.begin_use("a", "hang")
        told_to_end(host, signal.SIGTERM)

        assert host.result("ping") == {}
        host.notify("notifications/cancelled", {"requestId": waiting})

        assert host.ended() == 0  # nothing was left to wait for
        assert not [message for message in host.rest() if message.get("id") == waiting]


# SIGINT


@pytest.mark.fault("F35")
def test_the_second_ctrl_c_asks_nobody_to_leave(tmp_path: Path, pids: Path) -> None:
    """Servers are killed without SIGTERM, which they would get a second after the end of input."""
    files = [tmp_path / f"ended{n}" for n in range(3)]
    servers = {f"s{n}": witnessed(pids, file) for n, file in enumerate(files)}
    with PipeHost(config_file(tmp_path, {**servers, "free": entry()})) as host:
        host.initialize()
        host.open()
        host.begin_use("s0", "hang")
        told_to_end(host, signal.SIGINT)

        host.signal(signal.SIGINT)

        assert host.ended() == 130
    assert len(pids_in(pids)) == 3
    assert gone(pids_in(pids))
    assert [ended_by(file) for file in files] == ["SIGKILL"] * 3


@pytest.mark.usefixtures("short_deadlines")
def test_one_ctrl_c_asks_them(tmp_path: Path, pids: Path) -> None:
    file = tmp_path / "ended"
    with PipeHost(config_file(tmp_path, {"a": witnessed(pids, file)})) as host:
        host.initialize()
        host.open()

        host.signal(signal.SIGINT)

        assert host.ended() == 130
    assert ended_by(file) == "SIGTERM"
    assert gone(pids_in(pids))


@pytest.mark.usefixtures("real_commands")
@pytest.mark.parametrize("numbers", [("SIGINT", "SIGINT"), ("SIGTERM",), ("SIGTERM", "SIGINT")])
@pytest.mark.fault("F35")
def test_at_any_moment_of_starting_and_ending(
    tmp_path: Path, pids: Path, numbers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left, nothing is complained about, and it does not take long."""
    # Shorter than they are, and still a second: the last signal has to come before the end.
    monkeypatch.setenv("MCP_WORKBENCH_TEST_DEADLINES", "0.3")
    servers = {f"s{n}": noted(pids, *STUBBORN, "grandchild") for n in range(2)}
    servers["mute"] = noted(pids, *STUBBORN, "hang")  # what is under way does not end by itself
    file = config_file(tmp_path, servers)
    chance = random.Random(20260728)
    for _ in range(TIMES):
        with PipeHost(file) as host:
            host.initialize()
            host.begin("open_toolbox", {"toolbox_name": "dev"})
            for number in numbers:
                time.sleep(chance.uniform(0, 0.15))  # the moment is the subject
                host.signal(signal.Signals[number])
            began = time.monotonic()
            assert host.ended() == (130 if "SIGINT" in numbers else 0), host.stderr
            assert time.monotonic() - began < BOUND
        assert host.stderr == ""
        assert within(PROMISE, lambda: not any(map(alive, pids_in(pids))))


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("line", ["call dev/s0/hang", "check --connect"])
def test_a_command_that_starts_servers_at_any_moment(tmp_path: Path, pids: Path, line: str) -> None:
    servers = {f"s{n}": noted(pids, *STUBBORN, "grandchild") for n in range(3)}
    file = config_file(tmp_path, servers)
    argv = [*line.split(), "--config", str(file)]
    chance = random.Random(20260728)
    for _ in range(TIMES):
        before = len(pids_in(pids))
        run = start(argv, cwd=None, env=os.environ)
        eventually(lambda: len(pids_in(pids)) > before, "a server runs")  # noqa: B023
        for _ in range(2):
            time.sleep(chance.uniform(0, 0.1))
            run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=PATIENCE)
        assert run.returncode == 130
        assert b"Traceback" not in err
        assert b"rror" not in err
        assert within(PROMISE, lambda: not any(map(alive, pids_in(pids))))


@pytest.mark.parametrize("insist", [False, True])
def test_a_command_sees_its_servers_out_unless_it_is_told_twice(
    tmp_path: Path, pids: Path, insist: bool
) -> None:
    asked, ended = tmp_path / "asked", tmp_path / "ended"
    server = witnessed(pids, asked, f"note_eof={ended}")
    file = config_file(tmp_path, {"a": server})
    run = start(["call", "dev/a/hang", "--config", str(file)], cwd=None, env=os.environ)
    eventually(lambda: len(pids_in(pids)) == 1, "the server runs")
    run.send_signal(signal.SIGINT)
    eventually(ended.exists, "its input has ended")
    if insist:
        run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=PATIENCE)

    assert (run.returncode, err) == (130, b"")
    assert gone(pids_in(pids))
    assert ended_by(asked) == ("SIGKILL" if insist else "SIGTERM")


# Whoever vanishes

HOST = """
import subprocess, sys
with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
    print(run.pid, flush=True)
    run.stdin.write(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}\\n'
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"open_toolbox",'
        b'"arguments":{"toolbox_name":"dev"}}}\\n'
    )
    run.stdin.flush()
    run.wait()
"""


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("flags", [(), STUBBORN])
@pytest.mark.fault("F53")
def test_a_host_that_was_killed_is_followed(
    tmp_path: Path, pids: Path, flags: tuple[str, ...]
) -> None:
    file = config_file(tmp_path, {"a": noted(pids, *flags, "grandchild")})
    argv = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(file)]
    host = [sys.executable, "-E", "-S", "-c", HOST, *argv]
    with subprocess.Popen(host, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        ours = int(run.stdout.readline())
        eventually(lambda: len(pids_in(pids)) == 2, "the server runs, and its child")
        run.kill()

    assert within(BOUND, lambda: not any(map(alive, [ours, *pids_in(pids)])))


@pytest.mark.fault("F53")
def test_a_terminal_that_was_closed_ends_the_command(tmp_path: Path, pids: Path) -> None:
    file = config_file(tmp_path, {"a": noted(pids)})
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(file)]
    with subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, start_new_session=True
    ) as run:
        os.close(theirs)
        os.write(ours, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        answer = b""
        while b'"result":{}' not in answer:
            answer += os.read(ours, 4096)
        os.close(ours)

        assert run.wait(PATIENCE) in (0, 1)  # it reads no more, or it can't write: whichever first


# Many that refuse


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.fault("F4")
def test_launchers_that_refuse_to_leave_end_with_what_they_launched(
    tmp_path: Path, pids: Path
) -> None:
    """As `npx` does: the process that we start is not the server, and neither obeys."""
    launch = 'trap "" TERM; echo $$ >> "$PIDFILE"; "$@"; while :; do sleep 60; done'
    stubborn = noted(pids, *STUBBORN)
    launched = ["-c", launch, "sh", stubborn["command"], *stubborn["args"]]
    launcher = {**stubborn, "command": "/bin/sh", "args": launched}
    with PipeHost(config_file(tmp_path, {f"s{n}": launcher for n in range(5)})) as host:
        host.initialize()
        host.open()
        started = pids_in(pids)
        assert len(started) == 10
        host.close()

        assert host.ended() == 0

    assert gone(started)
    assert children(host.process.pid) == []


@pytest.mark.fault("F4")
def test_twenty_servers_that_refuse_to_leave_end_together(tmp_path: Path, pids: Path) -> None:
    servers = {f"s{index}": noted(pids, *STUBBORN) for index in range(20)}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        host.open()
        groups = pids_in(pids)
        assert len(groups) == 20
        host.close()

        assert host.process.wait(len(servers) * GRACE / 2) == 0  # not one after the other

    assert in_groups(groups) == []
    assert children(host.process.pid) == []
