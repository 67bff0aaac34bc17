"""A change of the configuration that has reached one replica only."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.raw_hosts import RawHost
from tests.cluster.scenes import LIMIT, Cluster, ReplicaProcess, cluster
from tests.kit.config import quick_entry

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

END = 20.0  # seconds


def servers(*names: str) -> dict[str, Any]:
    return {"dev": {"mcpServers": {name: quick_entry(name) for name in names}}}


async def change(replica: ReplicaProcess, boxes: dict[str, Any]) -> None:
    """Let one replica read other toolboxes than the others."""
    config = json.loads(replica.config.read_text())
    replica.config.write_text(json.dumps({**config, "toolboxes": boxes}))
    replica.signal(signal.SIGHUP)


async def answers(host: RawHost, server: str) -> bool:
    return await host.call(server, "echo", {"nonce": "n"}) is not None


async def until_it_answers(host: RawHost, server: str) -> None:
    end = time.monotonic() + END
    while not await answers(host, server):
        assert time.monotonic() < end, host.strange


def test_the_owner_of_a_session_decides_and_nobody_hangs(tmp_path: Path) -> None:
    async def scene(running: Cluster) -> None:
        first, second = running.replicas
        own, elsewhere = RawHost(first.port, "o", "alice"), RawHost(second.port, "e", "alice")
        await own.open()
        elsewhere.session = own.session
        elsewhere.number_from(1000)
        for host in (own, elsewhere):
            assert await answers(host, "old"), host.strange
        await change(first, servers("new"))
        await until_it_answers(own, "new")
        # What the other one does not know yet, it passes on all the same.
        assert await answers(elsewhere, "new"), elsewhere.strange
        assert not await answers(elsewhere, "old")
        theirs = RawHost(second.port, "t", "alice")
        await theirs.open()
        assert await answers(theirs, "old"), theirs.strange
        for host in (own, elsewhere, theirs):
            assert not host.outcomes["hangs"], host.strange
            host.close()
        # Its sessions go on at a replica with another configuration, which then counts.
        first.kill()
        elsewhere.move_to(second.port)
        assert await answers(elsewhere, "old"), elsewhere.strange
        elsewhere.close()

    with cluster(tmp_path, 2, later=1, toolboxes=servers("old")) as running:
        second = running.replicas[1]
        copy = tmp_path / "other" / "workbench-config.json"
        copy.parent.mkdir()
        copy.write_text(running.replicas[0].config.read_text())
        copy.chmod(0o600)
        second.config = copy
        second.start()
        second.ready()
        asyncio.run(scene(running))
