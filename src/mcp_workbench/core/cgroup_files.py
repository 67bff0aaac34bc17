"""Control groups of Linux (cgroup v2): where ours is, and what the files of a server's contain."""

from collections.abc import Iterable, Mapping

from mcp_workbench.core.spec import ResourceLimits

MEMORY, PIDS = "memory", "pids"  # the controllers that our limits need
_V2 = "0::"  # begins the line of cgroup v2 in /proc/PID/cgroup
_OCTAL = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def own_folder(groups: str, mounts: str) -> str:
    """Returns the folder of our group, from `cgroup` and `mountinfo` of `/proc/self`; or ""."""
    lines = groups.splitlines()
    group = next((line.removeprefix(_V2) for line in lines if line.startswith(_V2)), "")
    if not group.startswith("/") or "/.." in group:  # outside of what this namespace shows
        return ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if after.split(" ")[0] != "cgroup2" or len(fields) < 5:
            continue
        root, place = _unescaped(fields[3]).rstrip("/"), _unescaped(fields[4])
        if group == root or group.startswith(f"{root}/"):
            return f"{place.rstrip('/')}{group[len(root) :].rstrip('/')}"
    return ""


def _unescaped(field: str) -> str:
    for code, sign in _OCTAL.items():
        field = field.replace(code, sign)
    return field


def needed(limits: ResourceLimits) -> tuple[str, ...]:
    """Returns the controllers for these limits."""
    wanted = ((MEMORY, limits.memory_bytes), (PIDS, limits.processes))
    return tuple(controller for controller, limit in wanted if limit)


def settings(limits: ResourceLimits, controllers: Iterable[str]) -> dict[str, str]:
    """Returns the files of a group that hold these limits, in the order in which they are written."""
    files: dict[str, str] = {}
    if limits.memory_bytes and MEMORY in controllers:
        files["memory.max"] = str(limits.memory_bytes)
        files["memory.swap.max"] = "0"  # otherwise the limit would be on one kind of memory alone
        files["memory.oom.group"] = "1"  # a server without one of its processes is of no use
    if limits.processes and PIDS in controllers:
        files["pids.max"] = str(limits.processes)
    return files


def left(limits: ResourceLimits, controllers: Iterable[str]) -> ResourceLimits:
    """Returns the limits that such a group does not hold, for the system to enforce on each process."""
    held = frozenset(controllers)
    memory = 0 if MEMORY in held else limits.memory_bytes
    processes = 0 if PIDS in held else limits.processes
    return ResourceLimits(memory, processes, limits.open_files)


def all_ours(pids: Iterable[int], parents: Mapping[int, int], own: int) -> bool:
    """Whether each of these processes is `own` or descends from it. `parents`: of all."""
    for pid in pids:
        seen = 0
        while pid != own:
            pid = parents.get(pid, 0)  # noqa: PLW2901 - up the line
            seen += 1
            if not pid or seen > len(parents):
                return False
    return True
