"""Real replicas: `serve --http` processes on one Valkey, behind HAProxy without stickiness."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.proxies import Proxy, proxy_to
from tests.kit.config import program_entry, quick_entry
from tests.kit.servers import ASKER, FIXTURE
from tests.kit.valkey import Valkey, free_port, valkey

KEY = "0123456789abcdef0123456789abcdef"
START = 30.0  # seconds
# Seconds for one test of `make cluster`: far more than it needs, so that what hangs ends.
LIMIT = 300 + int(os.environ.get("CALLS", "1000")) // 10
TOKENS = {"alice": "alice-token-0123456789", "bob": "bob-token-0123456789"}


def configuration(**more: Any) -> dict[str, Any]:
    """Two principals, and servers: for all hosts, or one for each session, which may ask its host."""
    one = {"command": sys.executable, "args": ["-E", "-S", FIXTURE], "era": "legacy"}
    asker = program_entry(ASKER, era="legacy", scope="session", idleTimeout=20)
    servers = {"one": one, "asker": asker, "quick": quick_entry("quick")}
    servers["own"] = {**one, "scope": "session"}
    return {
        "cluster": {
            "url": "${CLUSTER_URL}",
            "key": "${CLUSTER_KEY}",
            "listen": "${CLUSTER_LISTEN:-127.0.0.1:0}",
            "advertise": "${CLUSTER_ADVERTISE:-}",
            "name": "${CLUSTER_NAME:-replicas}",
        },
        "http": {
            "tokens": {name: {"token": f"${{{name.upper()}}}"} for name in TOKENS},
            "allowedHosts": ["127.0.0.1"],
        },
        "toolboxes": {"dev": {"mcpServers": servers}},
        "limits": {"sessions": 20000},
        **more,
    }


class ReplicaProcess:
    """One `serve --http`."""

    def __init__(self, folder: Path, config: Path, environ: dict[str, str], port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.config = config
        self.environ = environ
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / f"replica-{self.port}.log"

    def start(self) -> None:
        command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--http", f"127.0.0.1:{self.port}"],
                env=self.environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def refused(self) -> str:
        """What it says when it ends without having served."""
        assert self.wait(START) != 0
        return self.log.read_text()

    def ready(self) -> None:
        end = time.monotonic() + START
        while self.status("/readyz") != 200:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = 60.0) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Bytes in memory."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


class Cluster:
    """Replicas, their engine, and a balancer if there is one here."""

    def __init__(
        self,
        folder: Path,
        engine: Valkey,
        config: dict[str, Any],
        count: int,
        proxy: Proxy | None = None,
    ) -> None:
        self.folder = folder
        self._proxy = proxy
        self.engine = engine
        path = folder / "workbench-config.json"
        path.write_text(json.dumps(config), "utf-8")
        path.chmod(0o600)
        self._environ = {k: v for k, v in os.environ.items() if not k.startswith("MCP_WORKBENCH_")}
        self._environ |= {"CLUSTER_URL": engine.url, "CLUSTER_KEY": KEY, "HOME": str(folder)}
        if proxy is not None:
            self._environ["CLUSTER_URL"] = f"valkey://127.0.0.1:{proxy.port}"
        self._environ |= {name.upper(): token for name, token in TOKENS.items()}
        # As on machines of their own: they share no state folder.
        homes = [{"MCP_WORKBENCH_HOME": str(folder / f"state {i}")} for i in range(count)]
        self.replicas = [ReplicaProcess(folder, path, self._environ | home) for home in homes]
        self.balancer_port = free_port()
        self._balancer: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.balancer_port}/mcp"

    @property
    def proxy(self) -> Proxy:
        """Between the replicas and the engine."""
        assert self._proxy is not None
        return self._proxy

    def start(self, *, balanced: bool, later: int = 0) -> None:
        first = self.replicas[: len(self.replicas) - later]
        for replica in first:
            replica.start()
        for replica in first:
            replica.ready()
        if balanced:
            self._start_balancer()

    def _start_balancer(self) -> None:
        program = haproxy_program()
        if program is None:
            pytest.skip("there is no haproxy")
        file = self.folder / "haproxy.cfg"
        file.write_text(self._balancer_rules())
        self._balancer = subprocess.Popen([program, "-f", str(file), "-db", "-q"])
        end = time.monotonic() + START
        while not self._balancer_answers():
            assert self._balancer.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)

    def _balancer_answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.balancer_port}/healthz", timeout=1)
        except OSError:
            return False
        return True

    def _balancer_rules(self) -> str:
        """Round robin; no cookie, no hash: nothing that keeps a session on one replica."""
        servers = "\n".join(
            f"  server r{i} 127.0.0.1:{r.port} check inter 300ms fall 2 rise 1"
            for i, r in enumerate(self.replicas)
        )
        return f"""
global
  maxconn 4000
defaults
  mode http
  timeout connect 2s
  timeout client 120s
  timeout server 120s
  timeout tunnel 1h
  timeout check 2s
  option abortonclose
  option redispatch 1
  retries 3
  retry-on conn-failure
frontend hosts
  bind 127.0.0.1:{self.balancer_port}
  default_backend replicas
backend replicas
  balance roundrobin
  option httpchk GET /readyz
  http-check send hdr Host 127.0.0.1
  http-request set-header Host 127.0.0.1
{servers}
"""

    def command(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run one of our commands with the configuration of the replicas."""
        config = str(self.folder / "workbench-config.json")
        return subprocess.run(
            [sys.executable, "-m", "mcp_workbench", *words, "--config", config],
            env=self._environ | environ,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )

    def alone(self, folder: Path) -> ReplicaProcess:
        """The same configuration without a cluster."""
        config = configuration()
        del config["cluster"]
        path = folder / "workbench-config.json"
        path.write_text(json.dumps(config), "utf-8")
        path.chmod(0o600)
        alone = ReplicaProcess(folder, path, self._environ)
        alone.start()
        alone.ready()
        return alone

    def stop(self) -> None:
        if self._balancer is not None:
            self._balancer.kill()
            self._balancer.wait()
        for replica in self.replicas:
            if replica.process is not None and replica.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    replica.signal(signal.SIGCONT)
                replica.process.kill()
                replica.process.wait()


def haproxy_program() -> str | None:
    return shutil.which("haproxy") or (
        "/usr/sbin/haproxy" if Path("/usr/sbin/haproxy").exists() else None
    )


@contextlib.contextmanager
def cluster(
    folder: Path,
    count: int = 3,
    *,
    balanced: bool = False,
    later: int = 0,
    proxied: bool = False,
    **more: Any,
) -> Generator[Cluster]:
    """Replicas for the length of the block; `later`: so many of them the scene starts itself."""
    engine_folder = folder / "engine"
    engine_folder.mkdir()
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(valkey(engine_folder))
        proxy = stack.enter_context(proxy_to(engine.port)) if proxied else None
        running = Cluster(folder, engine, configuration(**more), count, proxy)
        stack.callback(running.stop)
        running.start(balanced=balanced, later=later)
        yield running


def _lease_ends(running: Cluster) -> dict[bytes, bytes]:
    keys = re.findall(rb"replicas:lease:\w+", running.engine.command("KEYS", "replicas:lease:*"))
    return {key: running.engine.command("PEXPIRETIME", key.decode()) for key in keys}


async def known_to_each_other(running: Cluster) -> None:
    """Until each replica has renewed its lease: then it learns of all those that have one."""
    before = _lease_ends(running)
    assert len(before) == len(running.replicas)
    end = time.monotonic() + 30
    while before.items() & _lease_ends(running).items():
        assert time.monotonic() < end, "a replica does not renew its lease"
        await asyncio.sleep(0.05)


async def written_again(
    running: Cluster, *, replicas: int, sessions: int, seconds: float = 0.0
) -> None:
    """Until so many replicas have a lease, and so many sessions a record, in the engine for that long."""
    end = time.monotonic() + 30
    since = time.monotonic()
    while True:
        leases = running.engine.command("KEYS", "replicas:lease:*").count(b":lease:")
        records = running.engine.command("KEYS", "replicas:session:*").count(b":session:")
        if (leases, records) != (replicas, sessions):
            since = time.monotonic()
        elif time.monotonic() - since >= seconds:
            return
        assert time.monotonic() < end, f"in the engine: {leases} leases, {records} sessions"
        await asyncio.sleep(0.1)
