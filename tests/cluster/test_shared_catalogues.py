"""What servers offer, known to a replica that has started none of them."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.blocking_hosts import Hosts, hosts_of
from tests.cluster.scenes import LIMIT, Cluster, cluster
from tests.kit.clock import PATIENCE
from tests.kit.results import open_toolbox, text
from tests.kit.servers import FIXTURE

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]


def toolboxes(pids: Path) -> dict[str, Any]:
    entry = {"command": sys.executable, "args": ["-E", "-S", FIXTURE], "era": "legacy"}
    return {"dev": {"mcpServers": {"one": {**entry, "env": {"PIDFILE": str(pids)}}}}}


def names(running: Cluster) -> list[str]:
    reply = running.engine.command("KEYS", "*:catalogue:*").decode("latin-1")
    return [line for line in reply.split() if ":catalogue:" in line]


def found(hosts: Hosts, replica: int) -> str:
    host = hosts.modern(replica)
    arguments = {"query": "Say it again"}
    return text(
        host.request("tools/call", {"name": "search_tools", "arguments": arguments})["result"]
    )


def restart_empty(running: Cluster, number: int) -> None:
    """Start a replica again, as if on a new machine."""
    replica = running.replicas[number]
    replica.kill()
    shutil.rmtree(running.folder / f"state {number}", ignore_errors=True)
    replica.start()
    replica.ready()


def test_a_replica_that_starts_knows_the_tools_without_starting_a_server(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with cluster(tmp_path, 2, toolboxes=toolboxes(pids)) as running, hosts_of(running) as hosts:
        assert "echo" in str(hosts.modern(0).request("tools/call", open_toolbox()))
        end = time.monotonic() + PATIENCE
        while not names(running):
            assert time.monotonic() < end
            time.sleep(0.05)
        (name,) = names(running)
        assert 0 < int(running.engine.command("TTL", name)[1:]) <= 7 * 86_400
        assert b"echo" not in running.engine.command("GET", name)
        started = pids.read_text()
        restart_empty(running, 1)
        running.replicas[0].kill()

        assert "dev/one" in found(hosts, 1)
        assert "echo" in found(hosts, 1)
        assert pids.read_text() == started

        running.engine.command("SETRANGE", name, "40", "changed")
        restart_empty(running, 1)
        assert "echo" in found(hosts, 1)  # asked itself
        assert len(pids.read_text()) > len(started)
