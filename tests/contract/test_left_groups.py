"""A server that has left its process group ends with the workbench, however that ends (Linux)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually, within
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import PROMISE, alive, groups_below, in_groups, pids_in

if sys.platform != "linux":
    pytest.skip("promised on Linux alone, and reads /proc", allow_module_level=True)

# A launcher whose server leads a session of its own, and holds our pipes there.
SETSID = """
import os, sys
if os.fork() == 0:
    os.setsid()
    os.execv(sys.argv[1], sys.argv[1:])
os.wait()
"""
# A server that has started a daemon before it serves.
DAEMON = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    with open(os.environ["PIDFILE"], "a") as file:
        file.write(f"{os.getpid()}\\n")
    while True:
        signal.pause()
os.wait()
os.execv(sys.argv[1], sys.argv[1:])
"""


def started_by(program: str, server: dict[str, Any]) -> dict[str, Any]:
    line = ["-E", "-S", "-c", program, server["command"], *server["args"]]
    return {**server, "command": sys.executable, "args": line}


ENDS: dict[str, tuple[Callable[[PipeHost], None], int]] = {
    "end of input": (PipeHost.close, 0),
    "SIGTERM": (lambda host: host.signal(signal.SIGTERM), 0),
    "SIGKILL": (lambda host: host.signal(signal.SIGKILL), -signal.SIGKILL),
}


@pytest.mark.parametrize("end", list(ENDS))
@pytest.mark.fault("F5")
def test_nothing_is_left(tmp_path: Path, end: str) -> None:
    pids = tmp_path / "pids"
    stubborn = entry("no_eof_exit", "ignore_term", env={"PIDFILE": str(pids)})
    servers = {"session": started_by(SETSID, stubborn), "daemon": started_by(DAEMON, stubborn)}
    act, status = ENDS[end]
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        host.open()
        eventually(lambda: len(pids_in(pids)) == 3, "both servers run, and the daemon")
        inside = in_groups(groups_below(host.process.pid))
        started = pids_in(pids)
        assert len([pid for pid in started if pid not in inside]) == 2
        host.statuses = (status,)
        try:
            act(host)
            host.ended()

            assert within(PROMISE, lambda: not any(map(alive, [*started, *inside])))
        finally:
            for pid in filter(alive, pids_in(pids)):
                os.kill(pid, signal.SIGKILL)
