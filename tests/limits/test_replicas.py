"""Limits that replicas share through a real engine: exact, without it, and after a replica was killed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.cluster import shared_limits
from mcp_workbench.cluster.engine import Engine
from mcp_workbench.cluster.shared_limits import SharedLimits
from mcp_workbench.config.cluster_settings import EngineAddress
from mcp_workbench.core.principal_limits import Wanted
from mcp_workbench.core.spec import PrincipalLimits
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Peer, rpc
from tests.kit.results import INITIALIZE, use_tool
from tests.kit.valkey import Valkey, valkey
from tests.limits.scenes import (
    NOISY,
    QUIET,
    LimitedPort,
    accepted,
    bearer,
    limited_port,
    modern_call,
    refused,
    settings,
)

PATIENCE = 20.0
PAUSE = 0.02  # seconds between two calls that wait for another replica or for the engine


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    with valkey(tmp_path) as running:
        yield running


async def asked_until(true: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so; the bound is that of the port."""
    while not await true():  # noqa: ASYNC110 - neither the engine nor a replica sends an event
        await asyncio.sleep(PAUSE)


class Replica:
    """A port whose limits are shared."""

    def __init__(self, opened: LimitedPort, engine: Engine) -> None:
        self.opened = opened
        self.engine = engine

    async def admitted(self, calls: int, token: str = NOISY) -> int:
        """How many of so many calls, one after another, are not refused."""
        return [accepted(await modern_call(self.opened, token)) for _ in range(calls)].count(True)

    async def until_admitted(self) -> None:
        await asked_until(self._admits)

    async def until_refused(self) -> None:
        async def refuses() -> bool:
            return not await self._admits()

        await asked_until(refuses)

    async def _admits(self) -> bool:
        return accepted(await modern_call(self.opened, NOISY))

    async def hang(self, token: str = NOISY) -> Peer:
        """A call that ends when its connection does."""
        peer = await self.opened.connect()
        body, headers = self.opened.modern(
            "tools/call", use_tool("fixture", "hang"), **bearer(token)
        )
        peer.send(self.opened.request(body, headers))
        return peer


@asynccontextmanager
async def replica(server: Valkey, limits: PrincipalLimits, name: str) -> AsyncGenerator[Replica]:
    plain = snapshot(spec("fixture"))
    async with (
        limited_port(settings(limits), plain, stands=False) as opened,
        task_scope() as scope,
    ):
        engine = Engine(EngineAddress("127.0.0.1", server.port), "wb")
        scope.start(engine.run(), "engine")
        await engine.ready(PATIENCE)
        shared = SharedLimits(engine, name, scope.start)
        scope.start(shared.run(opened.front.gateway), "shared limits")
        await until(lambda: opened.quotas.shared is not None)
        yield Replica(opened, engine)


@asynccontextmanager
async def three(server: Valkey, limits: PrincipalLimits) -> AsyncGenerator[list[Replica]]:
    async with (
        replica(server, limits, "a") as a,
        replica(server, limits, "b") as b,
        replica(server, limits, "c") as c,
    ):
        yield [a, b, c]


@pytest.mark.parametrize("most", [5, 600])
async def test_calls_per_minute_are_exact_within_five_percent(server: Valkey, most: int) -> None:
    async with three(server, PrincipalLimits(calls_per_minute=most)) as replicas:
        async with asyncio.TaskGroup() as tasks:
            counts = [
                tasks.create_task(one.admitted(most // 6 + 5)) for one in replicas for _ in "ab"
            ]
        total = sum(count.result() for count in counts)
        assert 0.95 * most <= total <= 1.05 * most
        assert total <= most  # nothing was bought earlier
        for one in replicas:
            while accepted(answer := await modern_call(one.opened, NOISY)):
                total += 1  # the last of what it still holds
            assert 1 <= refused(answer) <= 61
        assert total == most
        assert await replicas[0].admitted(1, QUIET) == 1


async def test_most_calls_ask_the_engine_nothing(server: Valkey) -> None:
    async with three(server, PrincipalLimits(calls_per_minute=20_000)) as replicas:
        before = [one.engine.operations for one in replicas]
        for one in replicas:
            assert await one.admitted(100) == 100
        asked = sum(one.engine.operations for one in replicas) - sum(before)
        assert asked <= 6  # one in a hundred calls, and the text of the script


async def test_one_replica_may_use_the_whole_limit(server: Valkey) -> None:
    async with three(server, PrincipalLimits(calls_per_minute=20)) as replicas:
        assert await replicas[0].admitted(25) == 20
        assert await replicas[1].admitted(5) == 0


async def test_calls_in_flight_are_counted_for_all_replicas(server: Valkey) -> None:
    async with three(server, PrincipalLimits(concurrent_calls=10)) as replicas:
        peers = [await one.hang() for _ in range(10) for one in replicas]
        running = lambda: sum(one.opened.running() for one in replicas)  # noqa: E731
        await until(lambda: running() == 10)
        for one in replicas:
            assert refused(await modern_call(one.opened, NOISY)) == 1
            assert accepted(await modern_call(one.opened, QUIET))
        assert running() == 10
        for peer in peers:
            peer.close()
        await until(lambda: running() == 0)
        await replicas[2].until_admitted()  # slots are returned


async def keys_of(one: Replica) -> list[str]:
    found = await one.engine.ask("KEYS", "wb:limits:*")
    return [key.decode() for key in found]


async def test_a_slot_that_one_replica_gives_back_is_used_by_another(server: Valkey) -> None:
    async with three(server, PrincipalLimits(concurrent_calls=1)) as replicas:
        for one in [*replicas, *replicas]:
            peer = await one.hang()
            await until(lambda one=one: one.opened.running() == 1)
            peer.close()
            await until(lambda one=one: one.opened.running() == 0)
            # Until it is returned, which takes a moment, others are refused.
            following = replicas[(replicas.index(one) + 1) % 3]
            await following.until_admitted()


async def test_slots_of_a_replica_that_was_killed_are_free_again(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_limits, "LEASE", 1)
    limits = PrincipalLimits(concurrent_calls=2)
    async with replica(server, limits, "a") as alive:
        held = Wanted(0, 2, 2)
        async with task_scope() as scope:
            dead = SharedLimits(alive.engine, "dead", scope.start)
            granted = await dead.take("noisy", "calls", limits, held)
            assert granted is not None
            assert granted.slots == 2
        refused(await modern_call(alive.opened, NOISY))
        await alive.until_admitted()


async def test_without_the_engine_each_replica_counts_alone_and_says_so(
    server: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    limits = PrincipalLimits(calls_per_minute=30, concurrent_calls=4)
    with caplog.at_level(logging.INFO):
        async with three(server, limits) as replicas:
            assert [await one.admitted(5) for one in replicas] == [5, 5, 5]
            server.stop()
            await until(lambda: not any(one.engine.is_ready for one in replicas))
            assert [await one.admitted(40) for one in replicas] == [25, 25, 25]
            assert "limits of principals count on this replica alone" in caplog.text
            assert all(one.opened.running() == 0 for one in replicas)
            server.start()  # it has forgotten everything
            await until(lambda: all(one.engine.is_ready for one in replicas))
            assert sum([await one.admitted(20) for one in replicas]) == 30
    assert "limits of principals count for all replicas" in caplog.text


async def test_calls_in_flight_without_the_engine_are_known_to_it_afterwards(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_limits, "RENEW", 0.05)
    async with three(server, PrincipalLimits(concurrent_calls=2)) as replicas:
        server.stop()
        await until(lambda: not any(one.engine.is_ready for one in replicas))
        peers = [await replicas[0].hang(), await replicas[0].hang()]
        await until(lambda: replicas[0].opened.running() == 2)
        server.start()
        await until(lambda: all(one.engine.is_ready for one in replicas))
        await replicas[1].until_refused()  # it was renewed
        for peer in peers:
            peer.close()
        await replicas[1].until_admitted()


HOSTILE = [
    ("SET", "x"),
    ("RPUSH", "1", "2"),
    ("HSET", "a", "1 99999999999", "0", "-5", "nan", "inf", "9" * 40, "9" * 40),
    ("HSET", "\r\n$5", "*3", "1e999", "1", "", ""),
]


@pytest.mark.parametrize("value", HOSTILE)
async def test_hostile_values_in_the_engine_open_and_close_nothing(
    server: Valkey, value: tuple[str, ...]
) -> None:
    async with three(server, PrincipalLimits(5, 3)) as replicas:
        assert await replicas[0].admitted(1) == 1
        for key in await keys_of(replicas[0]):
            server.command("DEL", key)
            server.command(value[0], key, *value[1:])
        admitted = sum([await one.admitted(10) for one in replicas])
        assert 1 <= admitted <= 15  # at most as without the engine


async def test_what_the_engine_knows_is_no_name_and_goes_away(server: Valkey) -> None:
    async with three(server, PrincipalLimits(5, 3)) as replicas:
        peer = await replicas[0].hang()
        await until(lambda: replicas[0].opened.running() == 1)
        keys = await keys_of(replicas[0])
        assert len(keys) == 2
        for key in keys:
            assert "noisy" not in key
            assert 0 < await replicas[0].engine.ask("TTL", key) <= 62
        peer.close()


async def test_a_call_that_is_cancelled_while_the_engine_is_silent_costs_no_slot(
    server: Valkey,
) -> None:
    async with replica(server, PrincipalLimits(concurrent_calls=1), "a") as one:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            peers = [await one.hang() for _ in range(5)]
            await until(lambda: one.opened.quotas.usage("noisy").waiting == 5)
            for peer in peers:
                peer.close()
            await until(lambda: one.opened.quotas.usage("noisy").waiting == 0)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert one.opened.running() == 0
        await until(lambda: one.engine.is_ready)
        await one.until_admitted()


# Sessions


async def opened_sessions(one: Replica, count: int, token: str = NOISY) -> int:
    """How many of so many sessions are opened."""
    begin = rpc("initialize", INITIALIZE, 1)
    answers = [await one.opened.ask(begin, bearer(token)) for _ in range(count)]
    assert {answer.status for answer in answers} <= {200, 429}
    return [answer.status for answer in answers].count(200)


async def until_session(one: Replica) -> None:
    """Until one is opened."""

    async def opens() -> bool:
        return await opened_sessions(one, 1) == 1

    await asked_until(opens)


async def test_sessions_are_counted_for_all_replicas(server: Valkey) -> None:
    async with three(server, PrincipalLimits(sessions=10)) as replicas:
        async with asyncio.TaskGroup() as tasks:
            counts = [tasks.create_task(opened_sessions(one, 8)) for one in replicas]
        assert sum(count.result() for count in counts) == 10
        assert await opened_sessions(replicas[0], 1, QUIET) == 1


async def test_sessions_that_have_ended_make_room_on_another_replica(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_limits, "RENEW", 0.05)
    async with three(server, PrincipalLimits(sessions=2)) as replicas:
        first = await replicas[0].opened.open(**bearer(NOISY))
        assert await opened_sessions(replicas[1], 2) == 1
        await first.post(b"", method="DELETE")
        await until_session(replicas[2])
        assert await opened_sessions(replicas[0], 1) == 0


async def test_sessions_without_the_engine_are_counted_alone(server: Valkey) -> None:
    async with three(server, PrincipalLimits(sessions=2)) as replicas:
        server.stop()
        await until(lambda: not any(one.engine.is_ready for one in replicas))
        assert [await opened_sessions(one, 3) for one in replicas] == [2, 2, 2]


async def test_a_host_that_leaves_while_the_engine_is_silent_leaves_no_session(
    server: Valkey,
) -> None:
    async with replica(server, PrincipalLimits(sessions=1), "a") as one:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            peer = await one.opened.connect()
            peer.send(one.opened.request(rpc("initialize", INITIALIZE, 1), bearer(NOISY)))
            await until(lambda: bool(one.opened.quotas._asking))  # pyright: ignore[reportPrivateUsage]
            peer.close()
            await until(lambda: not one.opened.server.connections)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await until(lambda: one.engine.is_ready)
        await until_session(one)
        assert await opened_sessions(one, 1) == 0
