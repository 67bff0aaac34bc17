"""`kill -9` of the workbench: nothing of its servers' groups outlives it, whatever they ignore."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually, within
from tests.kit.command import serving
from tests.kit.config import config_file, entry
from tests.kit.http_host import rpc
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import PROMISE, alive, groups_below, guards, in_groups, pids_in
from tests.kit.results import use_tool

if sys.platform != "linux":
    pytest.skip("promised on Linux alone, and reads /proc", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("forked_commands")

STUBBORN = ("no_eof_exit", "ignore_term")
# How often the workbench is killed in each way; more often in a long run.
ROUNDS = int(os.environ.get("WORKBENCH_TEST_ROUNDS", "3"))


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def stubborn(pids: Path, *flags: str, **more: Any) -> dict[str, Any]:
    """A server that ignores the end of its input and SIGTERM."""
    return entry(*STUBBORN, *flags, env={"PIDFILE": str(pids)}, **more)


def launched(server: dict[str, Any]) -> dict[str, Any]:
    """The same server as the child of a launcher, as `npx` and `uvx` are."""
    line = ["-c", '"$@"; exit', "launcher", server["command"], *server["args"]]
    return {**server, "command": "/bin/sh", "args": line}


def three_kinds(pids: Path) -> dict[str, Any]:
    plain, parent = stubborn(pids), stubborn(pids, "grandchild")
    return {"plain": plain, "parent": parent, "launched": launched(parent)}


@contextmanager
def nothing_left(pid: int, pids: Path) -> Generator[None]:
    """Inside, the process is killed: then its guard and all in its servers' groups are gone."""
    groups, watching = groups_below(pid), guards(pid)
    assert groups
    assert len(watching) == 1
    started = pids_in(pids)
    try:
        yield
        assert within(PROMISE, lambda: not in_groups(groups))
        assert within(PROMISE, lambda: not any(map(alive, [*watching, *started, *pids_in(pids)])))
    finally:
        for left in in_groups(groups):
            os.kill(left, signal.SIGKILL)


@pytest.mark.usefixtures("real_commands")
@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.fault("F5")
def test_on_a_pipe(tmp_path: Path, pids: Path, round: int) -> None:
    with PipeHost(config_file(tmp_path, three_kinds(pids))) as host:
        host.initialize()
        host.open()
        host.begin_use("plain", "hang")
        host.statuses = (-signal.SIGKILL,)
        assert len(in_groups(groups_below(host.process.pid))) == 6  # 1, 2, and 3 with the launcher

        with nothing_left(host.process.pid, pids):
            host.signal(signal.SIGKILL)
            host.ended()


@pytest.mark.usefixtures("real_commands")
@pytest.mark.fault("F5")
def test_on_a_port(tmp_path: Path, pids: Path) -> None:
    servers = {"fixture": launched(stubborn(pids, "grandchild"))}
    with serving(config_file(tmp_path, servers)) as command:
        session = command.open()
        command.post(rpc("tools/call", use_tool("fixture", "stats"), 2), mcp_session_id=session)

        with nothing_left(command.process.pid, pids):
            command.process.kill()
            command.process.wait()


@pytest.mark.parametrize("line", ["call dev/a/hang", "tools dev/a", "check --connect"])
def test_in_a_command_that_starts_servers(tmp_path: Path, pids: Path, line: str) -> None:
    mute = () if line.startswith("call") else ("hang_list",)
    file = config_file(tmp_path, {"a": launched(stubborn(pids, "grandchild", *mute))})
    argv = [sys.executable, "-m", "mcp_workbench", *line.split(), "--config", str(file)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        eventually(lambda: len(pids_in(pids)) == 2, "the server runs, and its child")

        with nothing_left(run.pid, pids):
            run.kill()


@pytest.mark.fault("F5")
def test_in_the_middle_of_starting(tmp_path: Path, pids: Path) -> None:
    """At moments of chance: some servers are just being started, some run, some not yet."""
    file = config_file(tmp_path, {f"s{n}": stubborn(pids) for n in range(8)})
    chance = random.Random(20260728)
    for _ in range(2 * ROUNDS):
        with PipeHost(file) as host:
            host.initialize()
            host.statuses = (-signal.SIGKILL,)
            host.begin("open_toolbox", {"toolbox_name": "dev"})
            time.sleep(chance.uniform(0, 0.06))  # the moment is the subject
            groups = groups_below(host.process.pid)
            host.signal(signal.SIGKILL)
            host.ended()

            assert within(PROMISE, lambda: not in_groups(groups))  # noqa: B023 - called here
    # Whoever came to write down its number is gone, too, also those that we did not see begin.
    assert within(PROMISE, lambda: not any(map(alive, pids_in(pids))))


def test_a_guard_that_was_killed_first_has_a_successor(tmp_path: Path, pids: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": stubborn(pids, "grandchild")})) as host:
        host.initialize()
        host.open()
        host.statuses = (-signal.SIGKILL,)
        [first] = guards(host.process.pid)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: guards(host.process.pid) not in ([], [first]), "there is another")

        with nothing_left(host.process.pid, pids):
            host.signal(signal.SIGKILL)
            host.ended()


def test_the_guard_is_gone_with_the_last_server(tmp_path: Path, pids: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry(env={"PIDFILE": str(pids)})})) as host:
        host.initialize()
        assert guards(host.process.pid) == []  # nothing was started yet
        host.open()
        [watching] = guards(host.process.pid)
        host.close()
        host.ended()

        assert not alive(watching)
