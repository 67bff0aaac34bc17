"""Questions to Linux about processes: who is in a group, who is whose child, who guards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

PROMISE = 2.0  # seconds after which nothing of ours is left, however we ended


class Process(NamedTuple):
    """One line of the table of processes."""

    pid: int
    state: str
    parent: int
    group: int
    session: int


def processes() -> list[Process]:
    """All that run; what has ended and was not yet reaped does not."""
    found: list[Process] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" ")
        except OSError:  # it has ended meanwhile
            continue
        state, *numbers = rest.rpartition(") ")[2].split()[:4]
        if state not in "ZX":
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


def children(pid: int) -> list[int]:
    return [process.pid for process in processes() if process.parent == pid]


def guards(pid: int) -> list[int]:
    """The shells that guard the servers of this process."""
    return [
        child for child in children(pid) if b"ends the servers of mcp-workbench" in cmdline(child)
    ]


def cmdline(pid: int) -> bytes:
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


def within(seconds: float, true: Callable[[], bool]) -> bool:
    """Does it come true in this time? What the machine has kept us waiting itself does not count."""
    until = time.monotonic() + seconds
    pause = 0.005
    while not true():
        before = time.monotonic()
        if before > until:
            return False
        time.sleep(pause)
        until += max(0.0, time.monotonic() - before - 2 * pause)
        pause = min(pause * 1.5, 0.05)
    return True
