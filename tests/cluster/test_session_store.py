"""Records of sessions in a real engine: who may write one, and who may take one over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from mcp_workbench.cluster.engine import Engine
from mcp_workbench.cluster.keys import ValueSeal
from mcp_workbench.cluster.ownership import adopted, released
from mcp_workbench.cluster.records import ReplicaAddress, SessionRecord
from mcp_workbench.cluster.session_store import SessionStore
from mcp_workbench.config.cluster_settings import EngineAddress
from mcp_workbench.transport.tasks import task_scope
from tests.kit.valkey import Valkey, valkey

PATIENCE = 20.0
A, B = (ReplicaAddress(id, "127.0.0.1", 1) for id in ("a", "b"))
OF_A = SessionRecord("s", "a", 1, "alice", "/mcp", b"{}", "127.0.0.1", 1)


@asynccontextmanager
async def store_in(server: Valkey) -> AsyncGenerator[tuple[SessionStore, Engine]]:
    async with task_scope() as scope:
        engine = Engine(EngineAddress("127.0.0.1", server.port), "wb")
        scope.start(engine.run(), "engine")
        await engine.ready(PATIENCE)
        yield SessionStore(engine, ValueSeal(b"k" * 32)), engine


def test_a_session_is_adopted_when_the_lease_of_its_owner_has_ended(tmp_path: Path) -> None:
    async def scene(server: Valkey) -> None:
        async with store_in(server) as (store, engine):
            stored = store.write(OF_A)
            await engine.ask("SET", engine.key("lease", "a"), "1")
            assert await store.swap(stored, adopted(OF_A, B)) is None
            # Its owner itself may take it again: it lives, but the session is not in its memory.
            again = await store.swap(stored, adopted(OF_A, A))
            assert again is not None
            await engine.ask("DEL", engine.key("lease", "a"))
            assert await store.swap(stored, adopted(OF_A, B)) is None  # it was read before that
            taken = await store.swap(again, adopted(again.record, B))
            assert taken is not None
            assert (taken.record.owner, taken.record.epoch) == ("b", 3)

    with valkey(tmp_path) as server:
        asyncio.run(scene(server))


def test_a_former_owner_overwrites_nothing(tmp_path: Path) -> None:
    async def scene(server: Valkey) -> None:
        async with store_in(server) as (store, _):
            refused: list[str] = []
            stored = store.write(OF_A)
            opened = msgspec.structs.replace(OF_A, opened=("dev",))
            stored = store.rewrite(stored, opened, lambda: refused.append("first"))
            taken = await store.swap(stored, adopted(opened, B))
            assert taken is not None
            assert not refused
            store.rewrite(stored, released(opened, "a"), lambda: refused.append("second"))
            assert not await store.remove(stored)
            assert refused == ["second"]
            found = await store.read("s")
            assert found is not None
            assert found.record == taken.record
            assert await store.remove(taken)
            assert await store.read_all(["s"]) == {"s": None}
            # The engine has lost it: its owner writes it again.
            stored = store.rewrite(taken, taken.record, lambda: refused.append("third"))
            found = await store.read("s")
            assert found is not None
            assert found.raw == stored.raw
            assert refused == ["second"]

    with valkey(tmp_path) as server:
        asyncio.run(scene(server))


def test_a_record_that_the_engine_has_lost_is_noticed_when_it_is_kept(tmp_path: Path) -> None:
    async def scene(server: Valkey) -> None:
        async with store_in(server) as (store, engine):
            store.write(OF_A)
            assert await store.keep(["s"])
            await engine.ask("FLUSHALL")
            assert not await store.keep(["s"])

    with valkey(tmp_path) as server:
        asyncio.run(scene(server))
