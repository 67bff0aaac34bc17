"""The process of scripts: loaded with the first script, gone with the workbench, however that ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.kit.clock import PATIENCE, eventually
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import children, cmdline, gone
from tests.scripts.scenes import script, scripted, value

pytestmark = pytest.mark.usefixtures("real_commands")


def engines(host: PipeHost) -> list[int]:
    return [pid for pid in children(host.process.pid) if b"script_engine" in cmdline(pid)]


def started(host: PipeHost) -> list[int]:
    """The engine and its workers, while a script computes and another waits."""
    (engine,) = engines(host)
    host.begin("run_script", {"code": "while True: pass"})
    host.begin("run_script", {"code": "await call('dev/a/hang')"})
    eventually(lambda: len(children(engine)) >= 2, "both have workers")
    return [engine, *children(engine)]


def test_nothing_is_started_or_loaded_before_the_first_script(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path)) as host:
        host.handshake()
        host.result("tools/list")
        host.use("a", "echo")
        before = engines(host)
        value(script(host, "1"))
        after = engines(host)
        maps = Path(f"/proc/{host.process.pid}/maps").read_text()

    assert (before, len(after)) == ([], 1)
    assert "_monty" not in maps, "the interpreter is never in our own process"


@pytest.mark.usefixtures("short_deadlines")  # its calls never end
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_engine_and_workers_end_with_the_workbench(tmp_path: Path, number: signal.Signals) -> None:
    with PipeHost(scripted(tmp_path)) as host:
        host.statuses = (0, -number, 128 + number)
        host.handshake()
        value(script(host, "1"))
        processes = started(host)
        os.kill(host.process.pid, number)
        host.process.wait(PATIENCE)  # SIGTERM leaves calls in flight a moment

        assert gone(processes)


@pytest.mark.usefixtures("short_deadlines")  # its calls never end
def test_engine_and_workers_end_when_the_host_leaves(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path)) as host:
        host.handshake()
        value(script(host, "1"))
        processes = started(host)

    assert gone(processes)


def test_a_cancelled_script_has_no_worker(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path)) as host:
        host.handshake()
        value(script(host, "1"))
        (engine,) = engines(host)
        before = len(children(engine))
        id = host.begin("run_script", {"code": "while True: pass"})
        host.begin(
            "run_script",
            {"code": "await call('dev/a/hang')"},
        )
        eventually(lambda: len(children(engine)) > before, "they have workers")
        busy = set(children(engine))
        host.notify("notifications/cancelled", {"requestId": id})
        host.notify("notifications/cancelled", {"requestId": id + 1})
        eventually(lambda: len(set(children(engine)) & busy) <= 1, "their workers have ended")

        assert value(script(host, "2")) == 2
        assert engines(host) == [engine]
