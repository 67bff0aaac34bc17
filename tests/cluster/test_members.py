"""Who lives in a cluster as its replicas see it, and who may go on while the engine is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_workbench.cluster import members as members_module
from mcp_workbench.cluster.engine import Engine
from mcp_workbench.cluster.keys import ValueSeal
from mcp_workbench.cluster.link import LinkBroken
from mcp_workbench.cluster.members import Members
from mcp_workbench.cluster.records import ReplicaAddress
from mcp_workbench.config.cluster_settings import EngineAddress
from mcp_workbench.transport.tasks import task_scope
from tests.kit.clock import PATIENCE, until
from tests.kit.valkey import Valkey, valkey

VAULT = ValueSeal(b"k" * 32)
NEVER = 0.0
LEASE, PROMISE = 60.0, 120.0  # seconds; however slow the machine is, no lease ends in a test

Ask = Callable[[ReplicaAddress], Awaitable[bool]]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Valkey]:
    monkeypatch.setattr(members_module, "LEASE", LEASE)
    monkeypatch.setattr(members_module, "PROMISE", PROMISE)
    with valkey(tmp_path) as running:
        yield running


class Replicas:
    """What several replicas know of each other. None of them beats by itself."""

    def __init__(self, members: list[Members]) -> None:
        self.members = members

    async def meet(self) -> None:
        """Each has said that it lives, and has heard of all."""
        for _ in range(2):
            for one in self.members:
                await one.beat()

    async def lose_engine(self, server: Valkey) -> None:
        server.stop()
        async with asyncio.timeout(PATIENCE):
            await until(lambda: not any(one.engine.is_ready for one in self.members))


@asynccontextmanager
async def replicas(server: Valkey, count: int, ask: Ask | None = None) -> AsyncGenerator[Replicas]:
    """So many, which ask each other directly; or `ask` answers the first one."""
    async with asyncio.timeout(PATIENCE), task_scope() as scope:
        members: list[Members] = []

        def asker(number: int) -> Ask:
            async def directly(other: ReplicaAddress) -> bool:
                return members[other.port].promise(members[number].me.id)

            return directly if ask is None or number else ask

        for number in range(count):
            engine = Engine(EngineAddress("127.0.0.1", server.port), "wb")
            scope.start(engine.run(), "engine")
            await engine.ready(PATIENCE)
            me = ReplicaAddress(f"r{number}", "127.0.0.1", number)
            members.append(Members(engine, VAULT, me, asker(number), scope))
        yield Replicas(members)


async def test_replicas_know_each_other_after_their_beats(server: Valkey) -> None:
    async with replicas(server, 3) as all:
        first = all.members[0]
        assert not first.holds()
        began = time.monotonic()

        await all.meet()

        assert first.holds()
        assert began + LEASE - 1 < first.holds_until <= time.monotonic() + LEASE
        assert sorted(first.others) == ["r1", "r2"]
        assert sorted(first.all) == ["r0", "r1", "r2"]
        await all.members[2].drain()
        await first.beat()
        assert [id for id, one in first.others.items() if one.is_draining] == ["r2"]
        await all.members[2].leave()
        first.engine.since = NEVER  # that it has come lies long back
        await first.beat()
        assert sorted(first.others) == ["r1"]


async def test_all_go_on_while_the_engine_is_away_for_all(server: Valkey) -> None:
    async with replicas(server, 2) as all:
        await all.meet()
        await all.lose_engine(server)
        first, second = all.members
        leased = first.holds_until

        await first.beat()

        assert leased + 1 < first.holds_until <= time.monotonic() + PROMISE
        assert second.promised_until("r0") > NEVER
        assert second.promised_any_until() == second.promised_until("r0")
        assert first.promised_any_until() == NEVER
        assert "is away" in first.failure


async def test_a_replica_that_is_alone_goes_on_without_the_engine(server: Valkey) -> None:
    async with replicas(server, 1) as all:
        await all.meet()
        await all.lose_engine(server)
        leased = all.members[0].holds_until

        await all.members[0].beat()

        assert leased + 1 < all.members[0].holds_until <= time.monotonic() + PROMISE


async def _refuses(_: ReplicaAddress) -> bool:
    return False


async def _is_gone(_: ReplicaAddress) -> bool:
    raise LinkBroken


async def _is_unreachable(_: ReplicaAddress) -> bool:
    raise OSError


@pytest.mark.parametrize("ask", [_refuses, _is_gone, _is_unreachable])
async def test_nobody_goes_on_after_the_lease_without_the_promise_of_all(
    server: Valkey, ask: Ask
) -> None:
    async def only_the_second(other: ReplicaAddress) -> bool:
        return other.id == "r1" or await ask(other)

    async with replicas(server, 3, only_the_second) as all:
        await all.meet()
        await all.lose_engine(server)
        first = all.members[0]
        leased = first.holds_until

        await first.beat()

        assert first.holds_until == leased


async def test_nobody_promises_anything_while_it_reaches_the_engine(server: Valkey) -> None:
    async with replicas(server, 2) as all:
        await all.meet()

        assert not all.members[1].promise("r0")
        assert all.members[1].promised_any_until() == NEVER

        server.command("CONFIG", "SET", "maxmemory", "1")  # it answers, and is of no use
        await all.members[1].beat()
        assert "OOM" in all.members[1].failure
        assert all.members[1].promise("r0")


async def test_who_has_no_lease_gets_none_from_others(server: Valkey) -> None:
    async with replicas(server, 2) as all:
        await all.lose_engine(server)

        await all.members[0].beat()

        assert not all.members[0].holds()
        assert all.members[1].promised_any_until() == NEVER


async def test_what_is_ours_is_compared_when_the_engine_was_away(server: Valkey) -> None:
    compared: list[float | None] = []
    async with replicas(server, 1) as all:
        (only,) = all.members

        async def verify() -> None:
            compared.append(only.engine.since)

        only.verify = verify
        for _ in range(3):
            await only.beat()
        assert compared == [only.engine.since]
        only.distrust()
        await only.beat()
        assert len(compared) == 2

        await all.lose_engine(server)
        await only.beat()
        assert len(compared) == 2
        server.start()
        await only.engine.ready(PATIENCE)
        await only.beat()
        assert len(compared) == 3
        assert not only.failure
