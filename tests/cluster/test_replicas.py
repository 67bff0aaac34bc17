"""Three replicas behind HAProxy without stickiness, on a real Valkey: `make cluster`; CALLS sets the size."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.cluster.modern_hosts import ModernHost
from tests.cluster.raw_hosts import RawHost, hosts_at, strange, summed
from tests.cluster.scenes import LIMIT, TOKENS, Cluster, cluster, known_to_each_other, written_again
from tests.kit.results import MODERN

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

CALLS = int(os.environ.get("CALLS", "1000"))
MODERN_HOSTS = 4  # of each principal
HOSTS = max(6, min(60, CALLS // 30))
GONE = ("http 404", "http 503", "wrong", "wrong id", "hangs", "error")

Scene = Callable[[Cluster, list[RawHost]], Awaitable[None]]
Meanwhile = Callable[[], Awaitable[None]]


async def with_hosts(running: Cluster, scene: Scene) -> None:
    """Hosts of both eras and both principals; a port has few places for questions of modern ones."""
    modern = [
        ModernHost(running.balancer_port, f"m{number}", name)
        for number in range(MODERN_HOSTS)
        for name in TOKENS
    ]
    async with hosts_at(running.balancer_port, HOSTS) as hosts:
        try:
            await scene(running, [*hosts, *modern])
        finally:
            for host in modern:
                host.close()


async def load(
    hosts: list[RawHost], calls: int, meanwhile: Meanwhile | None = None, *, every: bool = True
) -> Counter[str]:
    """These hosts call all at once, each one call after the other, while something happens."""
    each = calls // len(hosts)

    async def one(host: RawHost, first: int) -> None:
        for number in range(first, first + each):
            await (host.any(number) if every else host.echo())

    async with asyncio.TaskGroup() as tasks:
        for first, host in enumerate(hosts):  # each begins with another kind of call
            tasks.create_task(one(host, first))
        if meanwhile is not None:
            tasks.create_task(_soon(meanwhile))
    return summed(hosts)


async def _soon(act: Meanwhile) -> None:
    await asyncio.sleep(1.0)  # amid the calls
    await act()


def report(title: str, total: Counter[str], seconds: float) -> None:
    done = sum(total.values())
    print(f"\n{title}: {done} calls, {dict(total)}, {done / seconds:.0f}/s", flush=True)


def test_every_replica_answers_every_call(tmp_path: Path) -> None:
    async def scene(running: Cluster, hosts: list[RawHost]) -> None:
        began = time.monotonic()
        total = await load(hosts, CALLS)
        report("round robin", total, time.monotonic() - began)
        assert set(total) == {"ok"}, (total, strange(hosts))
        assert all(host.asked and host.notices for host in hosts)
        assert [await host.end() for host in hosts] == [200] * len(hosts)

    with cluster(tmp_path, balanced=True) as running:
        asyncio.run(with_hosts(running, scene))


def test_a_killed_replica_loses_only_its_calls_in_flight(tmp_path: Path) -> None:
    async def scene(running: Cluster, hosts: list[RawHost]) -> None:
        killed = 0.0

        async def kill() -> None:
            nonlocal killed
            killed = asyncio.get_running_loop().time()
            running.replicas[0].signal(signal.SIGKILL)

        began = time.monotonic()
        total = await load(hosts, CALLS, kill)
        report("kill -9", total, time.monotonic() - began)
        # Lost: said so by the replica that forwarded; broken: the connection that HAProxy had to it.
        assert set(total) <= {"ok", "lost", "broken", "http 502"}, (total, strange(hosts))
        assert total["ok"] >= sum(total.values()) - 2 * len(hosts)
        slowest = await slowest_return(hosts, killed)
        print(f"every session went on within {slowest:.1f} s", flush=True)
        assert slowest < 5.0

    with cluster(tmp_path, balanced=True) as running:
        asyncio.run(with_hosts(running, scene))


async def slowest_return(hosts: list[RawHost], since: float) -> float:
    """Seconds until the last of the hosts had a good answer after that time."""
    async with asyncio.timeout(20):
        for host in hosts:
            while not host.has_returned(since):  # its first call may have met the killed replica
                await host.echo()
    return max(host.returned_after(since) for host in hosts)


@pytest.mark.parametrize("keep", [True, False], ids=["with its data", "without its data"])
def test_calls_go_on_while_the_engine_is_away(tmp_path: Path, keep: bool) -> None:
    async def scene(running: Cluster, hosts: list[RawHost]) -> None:
        away = float(os.environ.get("AWAY", "20"))

        async def absence() -> None:
            await asyncio.to_thread(running.engine.stop, keep=keep)
            await asyncio.sleep(away)
            await asyncio.to_thread(running.engine.start)

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            outage = tasks.create_task(absence())
            while not outage.done():
                await load(hosts, len(hosts) * 20)
        await load(hosts, len(hosts) * 20)
        total = summed(hosts)
        report("engine away", total, time.monotonic() - began)
        assert set(total) == {"ok"}, (total, strange(hosts))
        # Everything is as before: another replica can adopt what is written down again.
        await written_again(running, replicas=3, sessions=HOSTS)
        running.replicas[0].kill()
        before = Counter(total)
        await load(hosts, len(hosts) * 2, every=False)
        after = summed(hosts)
        assert after["ok"] - before["ok"] >= len(hosts), (after, strange(hosts))
        assert not any(after[kind] for kind in GONE), (after, strange(hosts))

    with cluster(tmp_path, balanced=True) as running:
        asyncio.run(with_hosts(running, scene))


def test_sessions_outlive_a_time_in_which_nobody_could_answer_for_them(tmp_path: Path) -> None:
    """The engine is away, one replica is dead: the others stop. The engine comes back empty."""

    async def scene(running: Cluster) -> None:
        hosts = [RawHost(replica.port, "h", "alice") for replica in running.replicas[:2]]
        for host in hosts:
            await host.open()
            await host.echo()
        await known_to_each_other(running)
        await asyncio.to_thread(running.engine.stop)
        running.replicas[2].kill()
        end = time.monotonic() + 30
        while any(replica.status("/readyz") == 200 for replica in running.replicas[:2]):
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        async with asyncio.TaskGroup() as tasks:
            for host in hosts:  # its owner asks the other replica to adopt it, which can't
                tasks.create_task(host.echo())
            await asyncio.sleep(1.0)
            await asyncio.to_thread(running.engine.start)
        for host in hosts:
            await host.echo()
            assert host.outcomes == {"ok": 3}, host.strange
            host.close()

    with cluster(tmp_path) as running:
        asyncio.run(scene(running))


def test_a_rolling_restart_loses_nothing(tmp_path: Path) -> None:
    async def scene(running: Cluster, hosts: list[RawHost]) -> None:

        async def restart_all() -> None:
            for replica in running.replicas:
                replica.signal(signal.SIGTERM)
                assert await asyncio.to_thread(replica.wait) == 0
                replica.start()
                await asyncio.to_thread(replica.ready)
                await asyncio.sleep(1.0)

        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            restarts = tasks.create_task(restart_all())
            while not restarts.done():
                await load(hosts, len(hosts) * 20)
        total = summed(hosts)
        report("rolling restart", total, time.monotonic() - began)
        assert set(total) == {"ok"}, (total, strange(hosts))

    with cluster(tmp_path, balanced=True) as running:
        asyncio.run(with_hosts(running, scene))


def test_a_replica_that_was_stopped_does_not_answer_for_what_others_have_adopted(
    tmp_path: Path,
) -> None:
    async def scene(running: Cluster) -> None:
        first, second, _ = running.replicas
        host = RawHost(first.port, "h", "alice")
        await host.open()
        elsewhere = RawHost(second.port, "h", "alice")
        elsewhere.session = host.session
        before = await host.call("own", "slow", {"seconds": 0})
        assert before == await elsewhere.call("own", "slow", {"seconds": 0})
        first.signal(signal.SIGSTOP)
        try:
            lost = await elsewhere.call("own", "slow", {"seconds": 0})
            assert lost is None  # it waited at the stopped one
            assert elsewhere.outcomes["lost"] == 1, elsewhere.strange
            adopted = await elsewhere.call("own", "slow", {"seconds": 0})
            assert adopted not in (None, before)  # a server of the replica that has adopted it
        finally:
            first.signal(signal.SIGCONT)
        again = RawHost(first.port, "h", "alice")
        again.session = host.session
        for _ in range(20):
            assert await again.call("own", "slow", {"seconds": 0}) == adopted, again.strange
        for one in (host, elsewhere, again):
            one.close()

    with cluster(tmp_path) as running:
        asyncio.run(scene(running))


def test_as_many_sessions_as_calls_outlive_a_replica(tmp_path: Path) -> None:
    """Opened through the balancer, called once, and once more after a replica has handed its own over."""

    async def scene(running: Cluster) -> None:
        opened = [await sessions_at(running.balancer_port, some) for some in portions(CALLS)]
        sessions = [session for some in opened for session in some]
        before = await called_once(running.balancer_port, sessions)
        running.replicas[0].signal(signal.SIGTERM)
        during = await called_once(running.balancer_port, sessions)
        assert await asyncio.to_thread(running.replicas[0].wait) == 0
        after = await called_once(running.balancer_port, sessions)
        print(f"\n{len(sessions)} sessions: {before}, {during}, {after}", flush=True)
        assert before == during == after == {"ok": CALLS}

    with cluster(tmp_path, balanced=True) as running:
        asyncio.run(scene(running))


def portions(count: int) -> list[int]:
    """Hosts that are open at the same time: a port takes two thousand connections."""
    return [min(500, count - at) for at in range(0, count, 500)]


async def sessions_at(port: int, count: int) -> list[tuple[str, str]]:
    """Principals and sessions whose hosts have disconnected."""
    async with hosts_at(port, count) as hosts:
        return [(host.principal, host.session) for host in hosts]


async def called_once(port: int, sessions: list[tuple[str, str]]) -> Counter[str]:
    """What becomes of one call in each session, from a few hosts at once."""
    hosts = [RawHost(port, f"h{number}", "alice") for number in range(20)]

    async def one(number: int, host: RawHost) -> None:
        for host.principal, host.session in sessions[number :: len(hosts)]:
            await host.echo()

    async with asyncio.TaskGroup() as tasks:
        for number, host in enumerate(hosts):
            tasks.create_task(one(number, host))
    for host in hosts:
        host.close()
    return summed(hosts)


SDK1 = Path(__file__).parents[2] / ".venv-sdk1" / "bin" / "python"


@pytest.mark.parametrize("sdk", ["v1", "v2 legacy", "v2 modern"])
def test_hosts_of_the_sdks_notice_nothing(tmp_path: Path, sdk: str) -> None:
    version, _, mode = sdk.partition(" ")
    if version == "v1" and not SDK1.exists():
        pytest.skip(".venv-sdk1 is missing: make peers prepares it")
    python = str(SDK1) if version == "v1" else sys.executable
    program = str(Path(__file__).with_name(f"load_{version}.py"))
    calls = max(60, CALLS // 40)
    with cluster(tmp_path, balanced=True) as running:
        hosts = [
            subprocess.Popen(
                [python, program, running.url, token, f"{name}{i}", str(calls)]
                + ([{"legacy": "legacy", "modern": MODERN}[mode]] if mode else []),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for i in range(2)
            for name, token in TOKENS.items()
        ]
        for host in hosts:
            out, err = host.communicate(timeout=300)
            assert host.returncode == 0, err.decode()[-3000:]
            seen = json.loads(out)
            print(sdk, seen, flush=True)
            assert seen == {"ok": calls, "wrong": 0, "asked": calls // 10, "notices": calls // 5}
