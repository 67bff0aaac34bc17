"""A workbench under test as a process: started, asked how it does, ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.clock import eventually
from tests.kit.command import HttpCommand, serving
from tests.kit.config import config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import children
from tests.kit.vitals import megabytes

ROOT = Path(__file__).parents[2]
PROBED = [sys.executable, "-m", "tests.soak.probed"]


class Vitals(NamedTuple):
    """How a process does."""

    rss: float  # MiB
    peak: float  # MiB, since its start
    descriptors: int
    tasks: list[str]
    lag: float  # seconds by the clock, the worst since the last look
    busy: float  # seconds of work between two turns of the loop, the most since the last look
    children: list[int]


class Bench:
    """The command as a process of its own, with a probe in its loop."""

    def __init__(self, command: HttpCommand, folder: Path) -> None:
        self.pid = command.process.pid
        self.port = command.port
        self.folder = folder
        self._looks = 0

    def vitals(self) -> Vitals:
        self._looks += 1
        os.kill(self.pid, signal.SIGUSR1)
        probe = self.folder / "probe"
        eventually(lambda: self._answers(probe) >= self._looks, "the probe answers")
        answer = json.loads(probe.read_text().splitlines()[-1])
        return Vitals(
            megabytes(self.pid),
            megabytes(self.pid, "VmHWM"),
            answer["descriptors"],
            answer["tasks"],
            answer["lag"],
            answer["busy"],
            children(self.pid, zombies=True),
        )

    def _answers(self, probe: Path) -> int:
        return probe.read_text().count("\n") if probe.exists() else 0


@contextmanager
def workbench(servers: dict[str, Any], **more: Any) -> Generator[Bench]:
    """The command on a port with these servers in the toolbox `dev`; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {"PROBE": str(folder / "probe"), "PYTHONPATH": str(ROOT)}
        config = config_file(folder, servers, **more)
        with serving(config, env=env, command=PROBED) as command:
            draining = command.drain()
            try:
                yield Bench(command, folder)
            finally:
                command.process.terminate()
                command.process.wait(60)
                draining.join(60)


@contextmanager
def pipe_workbench(servers: dict[str, Any], **more: Any) -> Generator[PipeHost]:
    """The command on pipes with these servers in the toolbox `dev`, and its host."""
    with (
        tempfile.TemporaryDirectory() as name,
        PipeHost(config_file(Path(name), servers, **more)) as host,
    ):
        yield host.handshake()
