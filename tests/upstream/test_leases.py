"""Connections that hosts take turns with: whoever comes later finds all that are there, and no others."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.spec import Limits, ServerAddress, ServerSpec
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.health import OPEN_AFTER, Backoff
from mcp_workbench.upstream.pool import MOST_CONNECTIONS, ConnectionPool
from tests.kit.clock import PATIENCE, until
from tests.kit.config import spec
from tests.kit.processes import alive, let_through, pids_in


class Guest:
    """A host that comes with one request and goes; all of them are alike."""

    key = owner = "everybody"
    takes_turns = True
    is_legacy = False
    folder = ""

    def __init__(self) -> None:
        self.leases: dict[ServerAddress, Any] = {}

    def asking_capabilities(self) -> dict[str, Any]:
        return {}

    def told_capabilities(self) -> dict[str, Any]:
        return self.asking_capabilities()

    def ask(self, question: Any, caller: Any, answered: Any) -> Callable[[], None]:
        return lambda: None


@asynccontextmanager
async def opened() -> AsyncGenerator[ConnectionPool]:
    pool = ConnectionPool(Limits(), os.environ, lambda address: None)
    async with asyncio.timeout(PATIENCE), pool:
        yield pool


def own(pids: Path, *flags: str) -> ServerSpec:
    return spec("a", *flags, scope="session", env={"PIDFILE": str(pids)})


async def met(pool: ConnectionPool, server: ServerSpec, guest: Guest) -> Connection:
    connection = pool.connection(server, guest)
    await connection.ready()
    assert connection.usable
    return connection


async def kill_last(pids: Path, connection: Connection) -> None:
    os.kill(pids_in(pids)[-1], signal.SIGKILL)
    await until(lambda: connection.over)


async def test_one_that_ended_and_was_begun_again_is_there_for_others(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = own(pids)
    async with opened() as pool:
        one, other = Guest(), Guest()
        await kill_last(pids, await met(pool, server, one))
        second = await met(pool, server, other)  # looks for a free one while the first is over
        first = await met(pool, server, one)
        pool.release(one)
        pool.release(other)

        guests = [Guest(), Guest()]
        found = [await met(pool, server, guest) for guest in guests]

        assert {id(one) for one in found} == {id(first), id(second)}
        assert len(pids_in(pids)) == 3


async def test_one_that_is_begun_again_counts_like_the_others(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = own(pids)
    async with opened() as pool:
        one = Guest()
        await kill_last(pids, await met(pool, server, one))
        guests = [Guest() for _ in range(MOST_CONNECTIONS - 1)]
        for guest in guests:
            await met(pool, server, guest)
        with pytest.raises(ServerUnavailable, match="busy"):
            pool.connection(server, Guest())

        await met(pool, server, one)

        assert sum(map(alive, pids_in(pids))) == MOST_CONNECTIONS


async def test_those_that_ended_are_forgotten(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = own(pids)
    async with opened() as pool:
        for _ in range(3 * MOST_CONNECTIONS):
            guest = Guest()
            connection = await met(pool, server, guest)
            for _ in range(10):  # it works, so that its end is no failure to start
                await connection.conversation.ask("ping", b"{}", PATIENCE)
            await kill_last(pids, connection)
            pool.release(guest)

            assert len(pool.shared) <= 1, "of what has ended nothing is kept beyond the last"


async def test_of_one_that_keeps_failing_there_is_one_try_at_a_time(tmp_path: Path) -> None:
    pids, gate = tmp_path / "pids", tmp_path / "gate"
    os.mkfifo(gate)
    server = own(pids, f"gate={gate}")
    async with opened() as pool:
        pool.context.backoff = Backoff(lambda: time.monotonic() - 1000)  # so the next try is due
        for _ in range(OPEN_AFTER):
            pool.context.backoff.ended(server, 0.0, 0, "it broke")
        one, other = Guest(), Guest()
        tried = pool.connection(server, one)
        for _ in range(3):
            with pytest.raises(
                ServerUnavailable, match=r"it broke; it failed 5 times in a row and"
            ):
                pool.connection(server, other)

        await until(lambda: let_through(gate))
        await tried.ready()
        gate.unlink()
        gate.touch()  # where nobody has to wait

        await met(pool, server, other)  # it works again, and everybody may have one
        assert sum(map(alive, pids_in(pids))) == 2
