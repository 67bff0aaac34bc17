"""The processes of this machine, as Linux lists them."""

from __future__ import annotations

import os

_GROUP, _PAGES = 2, 21  # fields of /proc/PID/stat after the name, which may contain anything


def list_processes() -> dict[int, tuple[int, int]]:
    """Every process of this machine: its group and its resident pages. Empty on other systems."""
    processes: dict[int, tuple[int, int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return processes
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # it has just ended
            continue
        if len(fields) > _PAGES:
            processes[int(name)] = (int(fields[_GROUP]), int(fields[_PAGES]))
    return processes
