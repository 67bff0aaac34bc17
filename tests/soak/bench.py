"""A workbench under test as a process: started, asked how it does, ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.clock import eventually

ROOT = Path(__file__).parent.parent.parent


class Vitals(NamedTuple):
    """How a process does."""

    rss: int  # bytes
    peak: int  # bytes, since its start
    descriptors: int
    tasks: list[str]
    lag: float  # seconds by the clock, the worst since the last look
    busy: float  # seconds of work between two turns of the loop, the most since the last look
    children: list[int]


class Bench:
    """The command as a process of its own, with a probe in its loop."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.port = 0
        self._looks = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def vitals(self) -> Vitals:
        self._looks += 1
        os.kill(self.pid, signal.SIGUSR1)
        probe = self.folder / "probe"
        eventually(lambda: self._answers(probe) >= self._looks, "the probe answers")
        told = json.loads(probe.read_text().splitlines()[-1])
        status = Path(f"/proc/{self.pid}/status").read_text()
        rss, peak = (
            int(re.findall(rf"{name}:\s+(\d+)", status)[0]) << 10 for name in ("VmRSS", "VmHWM")
        )
        return Vitals(
            rss,
            peak,
            told["descriptors"],
            told["tasks"],
            told["lag"],
            told["busy"],
            children_of(self.pid),
        )

    def _answers(self, probe: Path) -> int:
        return probe.read_text().count("\n") if probe.exists() else 0


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


@contextmanager
def workbench(servers: dict[str, Any], *, http: bool = True, **more: Any) -> Generator[Bench]:
    """The command with these servers in the toolbox `t`; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "workbench-config.json"
        config.write_text(json.dumps({"toolboxes": {"t": {"mcpServers": servers}}, **more}))
        front = ["--http", "127.0.0.1:0"] if http else []
        with (folder / "stderr").open("w") as complaints:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.soak.probed",
                    "serve",
                    *front,
                    "--config",
                    str(config),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env={**os.environ, "PROBE": str(folder / "probe")},
                cwd=ROOT,
            )
            bench = Bench(process, folder)
            try:
                if http:
                    said = folder / "stderr"
                    eventually(lambda: "listening on" in said.read_text(), "the port is open")
                    bench.port = int(re.findall(r":(\d+)/mcp", said.read_text())[0])
                yield bench
            finally:
                process.terminate()
                process.communicate(timeout=60)
