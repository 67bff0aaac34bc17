"""What Linux says about a gateway's own processes: memory and CPU, without the servers behind it."""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

KNOWN = sys.platform == "linux"  # elsewhere there is no /proc, and these figures are left out
KIB = 1024
NANOSECONDS = 1e9


def descendants(pid: int) -> list[int]:
    """This process and everything below it."""
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        found.append(parent)
        for task in _tasks(parent):
            todo += map(int, _read(task / "children").split())
    return found


def command(pid: int) -> list[str]:
    return _read(Path(f"/proc/{pid}/cmdline")).split("\0")


def own(pid: int, server: str) -> list[int]:
    """A gateway's processes: those below `pid` that do not run the script `server`."""
    return [p for p in descendants(pid) if p == pid or server not in command(p)]


def memory(pids: list[int]) -> tuple[float, float]:
    """Resident MB, and the part that is written and theirs alone, summed over the processes."""
    resident = private = 0
    for pid in pids:
        for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines()[1:]:
            name, value = line.split()[:2]
            if name == "Rss:":
                resident += int(value)
            elif name == "Private_Dirty:":  # clean pages turn private as other programs leave
                private += int(value)
    return resident / KIB, private / KIB


def cpu(pids: list[int]) -> float:
    """Seconds of CPU so far, of all threads, to the nanosecond."""
    spent = 0
    for pid in pids:
        for task in _tasks(pid):
            spent += int((_read(task / "schedstat").split() or ["0"])[0])
    return spent / NANOSECONDS


def favour(pid: int | str, weight: str = "-15") -> None:
    """Weigh a session up against others on the machine; only root may, elsewhere nothing happens."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(weight)


@contextmanager
def favoured() -> Iterator[None]:
    """Our own session weighed up inside the block, and as before after it."""
    before = _read(Path("/proc/self/autogroup")).rpartition(" ")[2].strip()
    favour("self")
    try:
        yield
    finally:
        favour("self", before or "0")


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has ended meanwhile
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # it has ended meanwhile
        return ""
