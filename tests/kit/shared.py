"""The shared workbench: in the background for the length of a block, with hosts that join it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.daemon import control as protocol
from mcp_workbench.daemon.command_session import NOBODY, join
from mcp_workbench.daemon.control import connect, request
from mcp_workbench.daemon.paths import DaemonPaths, daemon_paths
from mcp_workbench.daemon.start import start
from mcp_workbench.daemon.status import Status, with_memory
from tests.kit import forked
from tests.kit.clock import PATIENCE, eventually, within
from tests.kit.forked import COMMAND, Streams, run
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import PROMISE, alive, groups_below, guards, in_groups

# For one command of several, whose other side never answers: it gives it a tenth of its patience.
SHORT: dict[str, str] = {"MCP_WORKBENCH_TEST_DEADLINES": "0.1"}


class Shared:
    """The command line of one configuration file, with a state folder of its own."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.home = config.parent / "home"
        self.env = {"MCP_WORKBENCH_HOME": str(self.home)}
        self.pid = 0

    def run(
        self, *words: str, before: Sequence[str] = (), said: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that hears what is `said`, and is itself started by what stands `before`."""
        argv = [*words, "--config", str(self.config)]
        environ = {**os.environ, **self.env, **env}
        if not before:
            streams = Streams(said)
            return run(argv, cwd=Path.cwd(), env=environ, streams=streams, timeout=3 * PATIENCE)
        return subprocess.run(
            [*before, *COMMAND, *argv],
            env=environ,
            input=said,
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

    @property
    def paths(self) -> DaemonPaths:
        paths = daemon_paths(str(self.config))
        assert paths is not None
        return DaemonPaths(paths.config, str(self.home), paths.name)

    def up(self, *more: str, **env: str) -> int:
        self.pid = json.loads(self.done("up", "--json", *more, **env))["pid"]
        return self.pid

    def begin(self, **env: str) -> int:
        """The same without the command; a fork where commands are."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.env, **env}.items():
                patch.setenv(name, value)
            self.pid = forked.daemon(self.paths.config, os.environ) or start(self.paths).pid
        return self.pid

    def status(self) -> Any:
        """What the command would say, without a process of its own for each question."""
        report = self._request(protocol.STATUS)
        status = msgspec.json.decode(report, type=Status) if report else Status(False, "")
        return msgspec.json.decode(msgspec.json.encode(with_memory(status)))

    def end(self) -> None:
        """Tell it to end, as `down` does."""
        self._request(protocol.DOWN)
        eventually(lambda: not alive(self.pid), "it has ended")

    def _request(self, message: bytes) -> bytes:
        """The report in the response; empty without one."""
        connection = connect(self.paths)
        if connection is None:
            return b""
        with connection:
            response = request(connection, PATIENCE, message)
        return response[1] if response and response[0] == protocol.REPORT else b""

    def server(self, name: str) -> Any:
        [found] = [one for one in self.status()["servers"] if one["server"] == name]
        return found

    def host(self, *options: str, modern: bool = False, real: bool = False, **env: str) -> PipeHost:
        """A host that has to join: one that does not would say so. `real`: signals reach it at once."""
        command = COMMAND if real else None
        env = {**self.env, **env}
        return PipeHost(self.config, *options, modern=modern, env=env, command=command)

    @contextmanager
    def joined(self) -> Generator[socket.socket]:
        """The connection of a command, which is a host while it lasts."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            connection = join(self.paths, "test", NOBODY)
        assert connection is not None
        connection.settimeout(PATIENCE)
        with connection:
            yield connection

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
    if more:
        bench.up(*more, **env)
    else:
        bench.begin(**env)
    try:
        yield bench
    finally:
        with nothing_left(bench.pid):
            bench.end()


@contextmanager
def nothing_left(pid: int) -> Generator[None]:
    """Inside, the process ends: then its guard and all in its servers' groups are gone."""
    groups, watching = groups_below(pid), guards(pid)
    yield
    assert within(PROMISE, lambda: not in_groups(groups))
    assert within(PROMISE, lambda: not any(map(alive, watching)))
