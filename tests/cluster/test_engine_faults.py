"""An engine that is there and of no use: it is slow, full, talks nonsense, or agrees to everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_workbench.cluster.ownership import LEASE, SETTLE
from tests.cluster.raw_hosts import RawHost, strange, summed
from tests.cluster.scenes import LIMIT, Cluster, cluster, written_again

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

LONG = 2 * LEASE  # seconds; every lease has ended long before
SLOW = 5.0  # seconds per reply

Act = Callable[[Cluster], None]


def slow(running: Cluster) -> None:
    running.proxy.delay = SLOW


def full(running: Cluster) -> None:
    running.engine.command("CONFIG", "SET", "maxmemory", "1")


def nonsense(running: Cluster) -> None:
    running.proxy.answer = lambda data: b"HTTP/1.1 200 OK\r\n\r\n" + data


def agrees(running: Cluster) -> None:
    running.proxy.answer = lambda data: b"+OK\r\n" * (data.count(b"\r\n*") + data.startswith(b"*"))


def repair(running: Cluster) -> None:
    running.proxy.delay, running.proxy.answer = 0.0, None
    running.engine.command("CONFIG", "SET", "maxmemory", "0")


@pytest.mark.parametrize("fault", [slow, full, nonsense, agrees])
def test_sessions_go_on_with_an_engine_that_is_of_no_use(tmp_path: Path, fault: Act) -> None:
    async def scene(running: Cluster) -> None:
        first, second = running.replicas
        hosts = [RawHost(replica.port, "h", "alice") for replica in running.replicas]
        for host in hosts:
            await host.open()
        forwarded = RawHost(first.port, "f", "alice")
        forwarded.session = hosts[1].session
        hosts.append(forwarded)
        await forwarded.echo()
        await asyncio.to_thread(fault, running)
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            for host in hosts:
                await host.echo()
            await asyncio.sleep(0.05)
        late = RawHost(second.port, "l", "alice")  # opens its session meanwhile
        await late.open()
        await late.echo()
        hosts.append(late)
        total = summed(hosts)
        assert set(total) == {"ok"}, (total, strange(hosts))
        await asyncio.to_thread(repair, running)
        await written_again(running, replicas=2, sessions=3, seconds=SETTLE)
        second.kill()
        for host in hosts[1:]:
            host.move_to(first.port)
            await host.echo()
        total = summed(hosts)
        for host in hosts:
            host.close()
        assert set(total) == {"ok"}, (total, strange(hosts))

    with cluster(tmp_path, 2, proxied=True) as running:
        asyncio.run(scene(running))
