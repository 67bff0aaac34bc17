"""Everything that replicas leave in the engine goes away by itself, and begins with their cluster's name."""

from __future__ import annotations

import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.blocking_hosts import Hosts, StreamHost, hosts_of
from tests.cluster.scenes import LIMIT, Cluster, cluster
from tests.kit.clock import eventually
from tests.kit.config import quick_entry
from tests.kit.http_host import rpc
from tests.kit.results import use_tool
from tests.kit.servers import FIXTURE

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

LONGEST = 90 * 86_400  # seconds: sign-ins at servers
KINDS = {"catalogue", "events", "incarnation", "lease", "limits", "replicas", "result", "session"}
LIMITS = {"callsPerMinute": 600, "concurrentCalls": 8, "sessions": 8}


def configured() -> dict[str, Any]:
    one = {"command": sys.executable, "args": ["-E", "-S", FIXTURE], "era": "legacy"}
    servers = {"one": one, "placed": {**quick_entry("placed"), "placement": "one"}}
    tokens = {"alice": {"token": "${ALICE}", "limits": LIMITS}}
    return {
        "toolboxes": {"dev": {"mcpServers": servers, "resultBudget": 1000}},
        "http": {"tokens": tokens, "allowedHosts": ["127.0.0.1"]},
    }


class Everything:
    """Hosts that use sessions, streams, results, a server with one process, and limits."""

    def __init__(self, running: Cluster, hosts: Hosts) -> None:
        self._host = hosts.legacy(0)
        self._streams = StreamHost(running, 0)
        self._ids = count(5)

    def use(self) -> None:
        self._host.request("tools/call", use_tool("one", "big", {"n": 5000}))
        self._host.request("tools/call", use_tool("placed", "echo", {"nonce": "n"}))
        params = {**use_tool("one", "progress", {"n": 1}), "_meta": {"progressToken": "p"}}
        with self._streams.stream(rpc("tools/call", params, next(self._ids))) as stream:
            assert list(stream.messages())


def names(running: Cluster) -> list[str]:
    found = running.engine.command("KEYS", "*").decode("latin-1")
    return re.findall(r"\n([^$*:\r]+:[^\r]+)\r", found)


def lifetime(running: Cluster, name: str) -> int:
    return int(running.engine.command("TTL", name)[1:])


def test_every_value_in_the_engine_expires(tmp_path: Path) -> None:
    with cluster(tmp_path, 1, **configured()) as running, hosts_of(running) as hosts:
        Everything(running, hosts).use()
        eventually(lambda: any(":catalogue:" in name for name in names(running)), "a catalogue")

        found = names(running)
        assert {name.split(":")[1] for name in found} == KINDS
        assert {name.split(":")[0] for name in found} == {"replicas"}
        lifetimes = {name: lifetime(running, name) for name in found}
        # -2: it has gone meanwhile; -1 would be for ever.
        assert all(t == -2 or 0 <= t <= LONGEST for t in lifetimes.values()), lifetimes


def test_an_engine_that_has_lost_its_data_gets_nothing_that_stays(tmp_path: Path) -> None:
    with cluster(tmp_path, 1, **configured()) as running, hosts_of(running) as hosts:
        everything = Everything(running, hosts)
        everything.use()
        running.engine.stop()
        running.engine.start()
        eventually(lambda: any(":lease:" in name for name in names(running)), "it is back")
        everything.use()

        assert [name for name in names(running) if lifetime(running, name) == -1] == []
