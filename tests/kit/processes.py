"""Questions to Linux about processes: who is in a group, who is whose child, who guards."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.kit.clock import PATIENCE, eventually, within

PROMISE = 2.0  # seconds after which nothing of ours is left, however we ended


class Process(NamedTuple):
    """One line of the table of processes."""

    pid: int
    state: str
    parent: int
    group: int
    session: int


def processes(*, zombies: bool = False) -> list[Process]:
    """All that run; what has ended and was not yet reaped does not, but for `zombies`."""
    found: list[Process] = []
    # Often looked at, and there are many: `Path` would take three times as long.
    for pid in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:  # noqa: PTH123
                line = stat.read().decode("utf-8", "replace")
        except OSError:  # it has ended meanwhile
            continue
        state, *numbers = line.rpartition(") ")[2].split(maxsplit=4)[:4]
        if zombies or state not in "ZX":
            found.append(Process(int(pid), state, *map(int, numbers)))
    return found


def in_groups(groups: Iterable[int]) -> list[int]:
    """Who lives in these process groups of servers, or is about to."""
    wanted = set(groups)
    return [process.pid for process in processes() if _is_in(process, wanted)]


def _is_in(process: Process, groups: set[int]) -> bool:
    """The leader of a server's group leads a session as well, which a guard does not."""
    if process.group in groups:
        return process.group == process.session
    return process.pid in groups


def children(pid: int, *, zombies: bool = False) -> list[int]:
    """Its children that run, or all that it has not reaped."""
    return [process.pid for process in processes(zombies=zombies) if process.parent == pid]


def guards(pid: int) -> list[int]:
    """The shells that guard the servers of this process."""
    return [
        child for child in children(pid) if b"ends the servers of mcp-workbench" in cmdline(child)
    ]


def cmdline(pid: int) -> bytes:
    """Its command line; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def groups_below(pid: int) -> set[int]:
    """The groups of all servers of this process; its guard is not one of them.

    Each has the number of its leader. The system is not asked for it: of a child that was forked a
    moment ago it would still name the group of its parent, which is that of the tests as well.
    """
    watching = guards(pid)
    return {child for child in children(pid) if child not in watching}


def pids_in(file: Path) -> list[int]:
    """The numbers of the fixture's processes that were started so far."""
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pid: int) -> bool:
    """Does the process run? One that has ended and was not yet reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def kill_server(pid: int) -> None:
    """Kill a server; returns when its workbench has noticed, which reaps it then."""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the workbench has noticed")


def gone(pids: Iterable[int]) -> bool:
    """Have they all ended in the time that is promised? What was killed may still be leaving."""
    wanted = list(pids)
    return within(PROMISE, lambda: not any(map(alive, wanted)))


def unmeasured() -> dict[str, str]:
    """Our environment for a child whose imports are counted: no coverage tool loads its own there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COV")}


def let_through(gate: Path) -> bool:
    """Let the server go on that waits at this FIFO; False where none does yet.

    One FIFO is for one passage: between our opening and closing it a second server would pass as well.
    """
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.ENXIO:  # nobody is there
            return False
        raise
    return True


MARK = "MCP_WORKBENCH_TEST"  # whoever has this variable was started by one certain test


def marked(mark: str) -> dict[int, str]:
    """The living processes that carry this mark, with their command lines."""
    sought = f"{MARK}={mark}".encode()
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if sought in (process / "environ").read_bytes().split(b"\0"):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(process.name)] = command
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def assert_all_gone(mark: str) -> None:
    """The workbench has ended, so its servers have: what was killed may still be leaving."""
    until = time.monotonic() + PATIENCE
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    assert left == {}
