"""Questions to Linux about processes: who is in a group, who is whose child, who guards."""

from __future__ import annotations

import os
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


def processes() -> list[Process]:
    """All that run; what has ended and was not yet reaped does not."""
    found: list[Process] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" ")
        except OSError:  # it has ended meanwhile
            continue
        state, parent, group = rest.rpartition(") ")[2].split()[:3]
        if state not in "ZX":
            found.append(Process(int(pid), state, int(parent), int(group)))
    return found


def in_groups(groups: Iterable[int]) -> list[int]:
    """Who lives in these process groups."""
    wanted = set(groups)
    return [process.pid for process in processes() if process.group in wanted]


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
    """The groups of all servers of this process; its guard is not one of them."""
    watching = guards(pid)
    return {os.getpgid(child) for child in children(pid) if child not in watching}


def within(seconds: float, true: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True
