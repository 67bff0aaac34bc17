"""How much memory there is behind a report: of the workbench, its hosts, its servers.

Whoever asks for the status looks for itself, so that the workbench need not: it has hosts to serve.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from mcp_workbench.daemon.status import HostLine, ServerLine, Status

_GROUP, _PAGES = 2, 21  # fields of /proc/PID/stat behind the name, which may hold anything


class Footprint(NamedTuple):
    """Of some processes."""

    processes: int
    memory: int  # bytes resident


def measured(status: Status) -> Status:
    """The same with what Linux tells of the processes in it; elsewhere as it is."""
    seen = processes()
    if status.pid not in seen:
        return status
    pages = os.sysconf("SC_PAGE_SIZE")

    def of(pids: Iterable[int]) -> Footprint:
        found = [seen[pid][1] for pid in pids if pid in seen]
        return Footprint(len(found), sum(found) * pages)

    def server(line: ServerLine) -> ServerLine:
        groups = set(line.pids)
        count, memory = of(pid for pid, (group, _) in seen.items() if group in groups)
        return msgspec.structs.replace(line, processes=count, memory=memory)

    def host(line: HostLine) -> HostLine:
        return msgspec.structs.replace(line, memory=of((line.pid,)).memory)

    return msgspec.structs.replace(
        status,
        memory=of((status.pid,)).memory,
        servers=tuple(map(server, status.servers)),
        hosts=tuple(map(host, status.hosts)),
    )


def processes() -> dict[int, tuple[int, int]]:
    """Every process of this machine: its group, and how many pages it has in memory."""
    found: dict[int, tuple[int, int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208
    except OSError:  # another system
        return found
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # it has just ended
            continue
        if len(fields) > _PAGES:
            found[int(name)] = (int(fields[_GROUP]), int(fields[_PAGES]))
    return found
