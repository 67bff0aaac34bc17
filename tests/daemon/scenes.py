"""A workbench in the background for the length of a block, and hosts that join it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.makers import PATIENCE, alive, eventually
from tests.processes import PROMISE, groups_below, guards, in_groups, within
from tests.rawhost import RawHost

COMMAND = [sys.executable, "-m", "mcp_workbench"]


class Shared:
    """The command line of one configuration file, with a state folder of its own."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.home = config.parent / "home"
        self.env = {"MCP_WORKBENCH_HOME": str(self.home)}
        self.pid = 0

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words, "--config", str(self.config)],
            env={**os.environ, **self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
        )

    def done(self, *words: str, **env: str) -> str:
        ran = self.run(*words, **env)
        assert (ran.returncode, ran.stderr) == (0, ""), ran
        return ran.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.done(*words, "--json"))

    def up(self, *more: str, **env: str) -> int:
        told = json.loads(self.done("up", "--json", *more, **env))
        self.pid = told["pid"]
        return self.pid

    def status(self) -> Any:
        return self.json("status")

    def server(self, name: str) -> Any:
        [found] = [one for one in self.status()["servers"] if one["server"] == name]
        return found

    def host(self, *options: str, modern: bool = False, **env: str) -> RawHost:
        """A host that has to join: one that does not would say so."""
        return RawHost(self.config, *options, modern=modern, env={**self.env, **env})

    def hosts(self, count: int) -> None:
        """Wait until so many have joined."""
        eventually(lambda: len(self.status()["hosts"]) == count, f"{count} hosts have joined")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        eventually(lambda: not alive(self.pid), "it is gone")

    def log(self) -> str:
        return "".join(
            file.read_text() for file in sorted(self.home.glob("daemon/*.log*"), reverse=True)
        )

    @property
    def socket(self) -> Path:
        [found] = self.home.glob("daemon/*.sock")
        return found


@contextmanager
def shared(config: Path, *more: str, **env: str) -> Generator[Shared]:
    """It runs inside the block, and afterwards nothing of it is left."""
    bench = Shared(config)
    bench.up(*more, **env)
    try:
        yield bench
    finally:
        with nothing_left(bench.pid):
            bench.run("down")
            eventually(lambda: not alive(bench.pid), "it has ended")


@contextmanager
def nothing_left(pid: int) -> Generator[None]:
    """Inside, the process ends: then its guard and all in its servers' groups are gone."""
    groups, watching = groups_below(pid), guards(pid)
    yield
    assert within(PROMISE + 3, lambda: not in_groups(groups))
    assert within(PROMISE, lambda: not any(map(alive, watching)))


def opened(host: RawHost) -> RawHost:
    """Opened in the host's own way."""
    if not host.modern:
        host.initialize()
    return host
