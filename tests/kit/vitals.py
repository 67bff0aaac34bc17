"""What a process uses: memory, descriptors, time."""

from __future__ import annotations

import os
from pathlib import Path


def open_fds() -> int:
    """Our own open descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


def _folder(pid: int) -> Path:
    """Its folder in `/proc`. What stands for a fork is not what anybody wants to measure."""
    folder = Path(f"/proc/{pid}")
    assert b"fork_relay.py" not in (folder / "cmdline").read_bytes(), (
        "see the fixture real_commands"
    )
    return folder


def megabytes(pid: int, what: str = "VmRSS") -> float:
    """Memory of a process: what it has now, or `VmHWM`, the most that it had."""
    for line in (_folder(pid) / "status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(what)


def forget_peak(pid: int) -> None:
    """From here on `VmHWM` is the most since now."""
    (_folder(pid) / "clear_refs").write_text("5")


def descriptors(pid: int) -> int:
    """Its open descriptors."""
    return len(os.listdir(_folder(pid) / "fd"))  # noqa: PTH208 - names are enough


def cpu_seconds(pid: int) -> float:
    """The time that it has computed so far."""
    fields = (_folder(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
