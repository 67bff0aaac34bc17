"""A control group (cgroup v2) for each server with limits, where one was delegated to the workbench.

A group is delegated if we may write it and nobody else is in it, as under `systemd-run --scope -p Delegate=yes`
or alone in a container. Linux limits groups below it only if it has no processes itself, so we move into one of
its own first.
"""

import contextlib
import os
from pathlib import Path

from mcp_workbench.core.cgroup_files import all_ours, left, needed, own_folder, settings
from mcp_workbench.core.spec import ResourceLimits

WORKBENCH = "mcp-workbench"  # the group of our own processes
SERVER = "mcp-workbench-server-"  # begins the names of the servers' groups
TRIES = 20  # a child of ours may start while we move
_JOIN = 'echo 0 >"$1/cgroup.procs" || exit 126; shift; exec "$@"'


class Delegation:
    """The group that was delegated to this process, if one was."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._count = 0

    def split(self, limits: ResourceLimits) -> tuple[tuple[str, ...], ResourceLimits]:
        """Returns the controllers that hold some of these limits, and the limits that they do not hold."""
        wanted = needed(limits)
        if not wanted or self._folder is None:
            return (), limits
        held = tuple(c for c in wanted if c in _words(self._folder / "cgroup.controllers"))
        return held, left(limits, held)

    def make_group(self, limits: ResourceLimits, controllers: tuple[str, ...]) -> Path:
        """Make a group with these limits for one server. Raises OSError."""
        assert self._folder is not None  # noqa: S101 - there are no controllers otherwise
        self._enable(self._folder, controllers)
        while True:
            group = self._folder / f"{SERVER}{self._count}"
            self._count += 1
            with contextlib.suppress(FileExistsError):
                group.mkdir()
                break
        try:
            for name, text in settings(limits, controllers).items():
                with contextlib.suppress(FileNotFoundError):  # there may be no swap
                    (group / name).write_text(text)
        except OSError:
            group.rmdir()
            raise
        return group

    def end_group(self, group: Path) -> bool:
        """Kill what is left in a server's group and remove it; False if that takes a moment more."""
        with contextlib.suppress(OSError):  # before Linux 5.14, and for one that is gone
            (group / "cgroup.kill").write_text("1")
        return _removed(group)

    def _enable(self, folder: Path, controllers: tuple[str, ...]) -> None:
        if set(controllers) <= _words(folder / "cgroup.subtree_control"):
            return
        own = folder / WORKBENCH
        own.mkdir(exist_ok=True)
        for attempt in range(TRIES):
            for pid in _pids(folder):
                with contextlib.suppress(ProcessLookupError):
                    (own / "cgroup.procs").write_text(str(pid))
            try:
                (folder / "cgroup.subtree_control").write_text(
                    " ".join(f"+{c}" for c in controllers)
                )
            except OSError:
                if attempt + 1 == TRIES:
                    raise
            else:
                return


def find_delegation() -> Delegation:
    """Look for a group that is ours alone."""
    try:
        groups = Path("/proc/self/cgroup").read_text()
        folder = Path(own_folder(groups, Path("/proc/self/mountinfo").read_text()) or "/nowhere")
        files = (folder / "cgroup.procs", folder / "cgroup.subtree_control")
        if not all(os.access(path, os.W_OK) for path in (folder, *files)):
            return Delegation()
        if not all_ours(_pids(folder), _parents(), os.getpid()):
            return Delegation()
        _remove_left(folder)
    except (OSError, ValueError):
        return Delegation()
    return Delegation(folder)


def joining(group: Path, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the command line that enters the group and then becomes the program."""
    return ("/bin/sh", "-c", _JOIN, "mcp-workbench group", str(group), *argv)


def _remove_left(folder: Path) -> None:
    """Remove groups of a workbench that was killed. Those that are in use can't be removed."""
    for group in folder.glob(f"{SERVER}*"):
        _removed(group)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # it is in use
        return False
    return True


def _words(file: Path) -> set[str]:
    with contextlib.suppress(OSError):
        return set(file.read_text().split())
    return set()


def _pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]


def _parents() -> dict[int, int]:
    """The parent of every process that we can see."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - there may be thousands
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
                parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    return parents
