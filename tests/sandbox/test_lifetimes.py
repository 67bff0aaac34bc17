"""What is in a sandbox ends with the workbench, whatever it does, and has the time to end well."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually, within
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import PROMISE, alive, children, groups_below, guards, processes
from tests.kit.servers.spy import TEXT
from tests.sandbox.scenes import files, needs_bubblewrap, spy

pytestmark = needs_bubblewrap

STUBBORN = ("no_eof_exit", "ignore_term")


def below(pid: int) -> list[int]:
    """All processes below this one."""
    parents = {process.pid: process.parent for process in processes()}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def escaping(folder: Path, sandbox: Any) -> dict[str, Any]:
    return {"spy": spy(sandbox=sandbox), "stubborn": entry(*STUBBORN, sandbox="process")}


def started(host: PipeHost, folder: Path) -> list[int]:
    """All processes of the workbench, once one of them has left its group and session."""
    host.initialize()
    host.open()
    mark = folder / "granted" / "escaped"
    host.use("spy", "attempt", {"attempts": [["escape", str(mark)]]})
    eventually(mark.exists, "a process has left its group")
    everything = below(host.process.pid)
    assert len({process.session for process in processes() if process.pid in everything}) > 2
    return everything


@pytest.fixture(params=["process", "files"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "granted").mkdir()
    lists = files(write=[str(tmp_path / "granted")])
    sandbox = "process" if request.param == "process" else lists
    return config_file(tmp_path, escaping(tmp_path, sandbox))


def test_nothing_survives_a_kill_not_even_what_has_left_its_group(config: Path) -> None:
    with PipeHost(config) as host:
        everything = started(host, config.parent)
        host.statuses = (-signal.SIGKILL,)
        host.signal(signal.SIGKILL)
        host.ended()

        assert within(PROMISE, lambda: not any(map(alive, everything)))


def test_nothing_survives_a_normal_end(config: Path) -> None:
    with PipeHost(config) as host:
        everything = started(host, config.parent)
        host.close()
        host.ended()

        assert within(PROMISE, lambda: not any(map(alive, everything)))


def test_a_kill_of_workbench_and_guard_together_is_survived_by_nothing(tmp_path: Path) -> None:
    servers = {"a": entry(*STUBBORN, "grandchild", sandbox="process")}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        host.open()
        everything = below(host.process.pid)
        host.statuses = (-signal.SIGKILL,)
        [guard] = guards(host.process.pid)
        host.signal(signal.SIGSTOP)  # it starts no other guard
        os.kill(guard, signal.SIGKILL)
        host.signal(signal.SIGKILL)
        host.ended()

        assert within(PROMISE, lambda: not any(map(alive, everything)))


def test_a_server_gets_sigterm_and_time_to_end_well(tmp_path: Path) -> None:
    """One that ignores the end of its input, and when it is told to end, takes a moment to write a file."""
    mark = tmp_path / "ended well"
    servers = {"spy": spy("on_term", str(mark), sandbox="process")}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        host.open()
        host.close()
        host.ended()

    assert mark.read_text() == TEXT


def test_a_server_that_exits_takes_its_sandbox_with_it(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry(sandbox="process")})) as host:
        host.initialize()
        host.open()
        [group] = groups_below(host.process.pid)
        inside = [p for p in below(host.process.pid) if p in below(group)]
        assert inside
        os.kill(inside[-1], signal.SIGKILL)

        eventually(lambda: not alive(group), "bubblewrap has noticed")
        assert host.use("a", "echo", {"text": "again"})
        assert children(host.process.pid)
