"""`kill -9` of the workbench at moments of chance: nothing of its servers' process groups is left."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import PROMISE, alive, guards, in_groups, pids_in, processes
from tests.soak.figures import Figure

STUBBORN = ("no_eof_exit", "ignore_term")  # such a server leaves when it is killed, and not before
AFTER = 10.0  # seconds that we look for what is left beyond the promise, to tell it from what stays


class Round(NamedTuple):
    """What became of one workbench."""

    processes: int  # that were seen of it and its servers
    left: int  # after the time that is promised
    seconds: float  # until the last was gone


def measure(rounds: int = 100) -> Figure:
    chance = random.Random(rounds)
    moments = list(MOMENTS.items())
    found: dict[str, list[Round]] = {name: [] for name, _ in moments}
    for number in range(rounds):
        name, moment = moments[number % len(moments)]
        with tempfile.TemporaryDirectory() as folder:
            found[name].append(_killed(Path(folder), moment, chance))
    everything = [one for kind in found.values() for one in kind]
    left = sum(one.left for one in everything)
    worst = max(one.seconds for one in everything)
    times = ", ".join(f"{len(kind)} x {name}" for name, kind in found.items())
    return Figure(
        f"kill -9 of the workbench, {rounds} times ({times})",
        f"nothing of its servers' process groups is left after {PROMISE:g} s",
        f"{left} of {sum(one.processes for one in everything)} processes left; "
        f"the last was gone after {worst * 1000:.0f} ms",
        left == 0,
    )


def _killed(folder: Path, moment: Moment, chance: random.Random) -> Round:
    pids = folder / "pids"
    with PipeHost(config_file(folder, _servers(pids))) as host:
        host.statuses = (0, 130, -signal.SIGKILL)  # it may have ended before, where it was ending
        moment(host, chance)
        groups = groups_of(host.process.pid)
        seen = {*guards(host.process.pid), *in_groups(groups)}
        host.signal(signal.SIGKILL)
        since = time.monotonic()
        host.ended()

        def remaining() -> set[int]:
            noted = {pid for pid in (*seen, *pids_in(pids)) if alive(pid)}
            return noted | set(in_groups(groups)) | set(_mentioning(folder))

        left = _when_gone(remaining, PROMISE)
        if not left:
            return Round(len(seen | set(pids_in(pids))), 0, time.monotonic() - since)
        late = _when_gone(remaining, AFTER)
        seconds = time.monotonic() - since
        for pid in late:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return Round(len(seen | set(pids_in(pids)) | left), len(left), seconds)


def _when_gone(remaining: Callable[[], set[int]], patience: float) -> set[int]:
    """Who is still there when the time is up; nobody, as soon as nobody is."""
    until = time.monotonic() + patience
    while (left := remaining()) and time.monotonic() < until:
        time.sleep(0.005)
    return left


def groups_of(pid: int) -> set[int]:
    """The groups of its servers. A child between fork and `setsid` has none of its own yet."""
    watching = guards(pid)
    return {
        child.group
        for child in processes()
        if child.parent == pid and child.group == child.pid and child.pid not in watching
    }


def _mentioning(folder: Path) -> list[int]:
    """Whose environment or command line has the folder: its servers, and a child that is none yet."""
    found: list[int] = []
    for process in processes():
        place = Path(f"/proc/{process.pid}")
        with suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
            words = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
            if str(folder).encode() in words:
                found.append(process.pid)
    return found


def _servers(pids: Path) -> dict[str, Any]:
    plain = entry(*STUBBORN, env={"PIDFILE": str(pids)})
    parent = entry(*STUBBORN, "grandchild", env={"PIDFILE": str(pids)})
    line = ["-c", '"$@"; exit', "launcher", parent["command"], *parent["args"]]
    launched = {**parent, "command": "/bin/sh", "args": line}  # as by `npx` and `uvx`
    return {"plain": plain, "parent": parent, "launched": launched}


# The moments


Moment = Callable[[PipeHost, random.Random], None]


def _starting(host: PipeHost, chance: random.Random) -> None:
    info = {"name": "soak", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    host.ask("initialize", params)
    host.notify("notifications/initialized")
    host.begin("open_toolbox", {"toolbox_name": "dev"})
    time.sleep(chance.uniform(0, 0.4))


def _idle(host: PipeHost, chance: random.Random) -> None:
    host.initialize()
    host.open()
    time.sleep(chance.uniform(0, 0.05))


def _calling(host: PipeHost, chance: random.Random) -> None:
    host.initialize()
    host.open()
    for server in ("plain", "parent", "launched"):
        for tool in ("hang", "echo", "hang"):
            host.begin_use(server, tool)
    time.sleep(chance.uniform(0, 0.05))


def _ending(host: PipeHost, chance: random.Random) -> None:
    host.initialize()
    host.open()
    if chance.random() < 0.5:
        host.close()
    else:
        host.signal(signal.SIGTERM)
    time.sleep(chance.uniform(0, 1.5))  # its servers are asked, asked firmly, and then killed


MOMENTS: dict[str, Moment] = {
    "starting": _starting,
    "idle": _idle,
    "calls under way": _calling,
    "ending": _ending,
}
