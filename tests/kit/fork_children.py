"""What a forked workbench starts of its own program, forked as well: 60 to 150 ms less than a start of Python.

The engine of scripts is a fork of its workbench, which has loaded it. It is its child, leads its own session, and has
the streams and the environment that it was given; its command line and its environment in /proc are those of the
workbench. The process that reads secrets is started by threads, and asks the process that forks for a fork instead.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

READS_SECRETS = "reads-secrets"  # a program of `fork_server.py`
RELAY = (sys.executable, "-E", "-S", str(Path(__file__).with_name("fork_relay.py")))
STREAMS = ("stdin", "stdout", "stderr")
HIGHEST = 1 << 16  # above every descriptor that the workbench of a test has


def fork_children(leave_after: Callable[[Callable[[], object]], object], socket: str) -> None:
    """From now on, this workbench forks where it would start one of these; others, as it did."""
    from mcp_workbench.config import secret_sources
    from mcp_workbench.gateway.script_worker import ENGINE
    from mcp_workbench.transport import process

    engine = (sys.executable, "-P", "-m", ENGINE)
    helper = (sys.executable, "-P", "-m", "mcp_workbench.config.secret_helper")

    def start_child(argv: Sequence[str], **options: Any) -> Any:
        if tuple(argv) != engine:
            return subprocess.Popen(argv, **options)
        assert options.keys() == {*STREAMS, "env", "cwd", "start_new_session"}
        assert (options["cwd"], options["start_new_session"]) == (None, True)
        if not (pid := os.fork()):
            streams = [options[name] for name in STREAMS]
            leave_after(lambda: _run_scripts(options["env"], streams))
        return ForkedEngine(pid)

    def start_source(argv: Sequence[str], **options: Any) -> Any:
        if tuple(argv[: len(helper)]) == helper:
            argv = (*RELAY, socket, READS_SECRETS, *argv[len(helper) :])
        return subprocess.Popen(argv, **options)

    for module, popen in ((process, start_child), (secret_sources, start_source)):
        names = {**vars(subprocess), "Popen": popen}
        vars(module)["subprocess"] = types.SimpleNamespace(**names)


def _run_scripts(env: Mapping[str, str], streams: Sequence[int]) -> None:
    """What `python -P -m …script_engine` does, in the fork of a workbench that runs."""
    from mcp_workbench.gateway import script_engine

    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    for number, copy in enumerate([os.dup(stream) for stream in streams]):
        os.dup2(copy, number)
    os.closerange(len(streams), HIGHEST)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # ours may have read ahead
    script_engine.main()


def read_secrets() -> None:
    """What `python -P -m …secret_helper` does, in a session of its own as whoever starts it gives it."""
    from mcp_workbench.config import secret_helper

    os.setsid()
    secret_helper.main()


class ForkedEngine:
    """As much of `subprocess.Popen` as the workbench uses of its children."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, _timeout: float | None = None) -> int:
        """The exit status. Whoever asks has killed it."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode
