"""Strangers at the internal port of a replica: they hold nothing for long, and keep no replica out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from mcp_workbench.cluster import replica
from mcp_workbench.cluster.link import ID as ID_LENGTH
from mcp_workbench.cluster.link import MAGIC, STRANGERS, ConnectingLink
from mcp_workbench.config.cluster_settings import ClusterConfig, EngineAddress
from tests.cluster.test_hostile_values import ID, KEY, OTHER
from tests.kit.clock import PATIENCE, until

FLOOD = 3 * STRANGERS  # connections at once


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Here the loop is the subject."""
    return "asyncio", {"use_uvloop": request.param}


class Transports:
    """Every connection that a port has accepted."""

    def __init__(self) -> None:
        self.opened: list[asyncio.Transport] = []

    @property
    def open(self) -> int:
        return sum(not transport.is_closing() for transport in self.opened)


@asynccontextmanager
async def internal_port() -> AsyncGenerator[tuple[int, Transports]]:
    config = ClusterConfig(EngineAddress("127.0.0.1", 1), KEY, ("127.0.0.1", 0), None, "a")
    listener = replica._Listener(config, 1 << 20, ID)  # pyright: ignore[reportPrivateUsage]
    seen = Transports()

    def accept() -> asyncio.BaseProtocol:
        link = listener.accept()
        made = link.connection_made

        def noted(transport: asyncio.BaseTransport) -> None:
            seen.opened.append(transport)  # pyright: ignore[reportArgumentType]
            made(transport)

        link.connection_made = noted
        return link

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0, backlog=FLOOD)
    async with asyncio.timeout(PATIENCE), server:
        yield server.sockets[0].getsockname()[1], seen
        listener.close()


def connected(sockets: ExitStack, number: int) -> socket.socket:
    return sockets.enter_context(socket.create_connection(("127.0.0.1", number)))


KNOWS_ID = "a greeting without a proof"
HELLOS = {
    "silence": b"",
    "the first bytes": MAGIC,
    "half a greeting": MAGIC + OTHER.encode() + ID.encode() + b"\0",
    "a greeting of another replica": MAGIC + OTHER.encode() + b"x" * ID_LENGTH + b"\0" * 16,
    KNOWS_ID: MAGIC + OTHER.encode() + ID.encode() + b"\0" * 16,
    "something else": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("said", HELLOS)
async def test_no_connection_of_a_flood_stays_open(said: str) -> None:
    async with internal_port() as (number, seen):
        with ExitStack() as sockets:
            for _ in range(FLOOD):  # all before the port accepts one
                connected(sockets, number).send(HELLOS[said] or b"")

            await until(lambda: len(seen.opened) == FLOOD)
            # Those that know its id have as many places of their own; greetings may still be unread.
            assert seen.open <= (2 if said == KNOWS_ID else 1) * STRANGERS
            await until(lambda: seen.open == 0)


@pytest.mark.parametrize("said", ["silence", "half a greeting", "a greeting of another replica"])
async def test_a_replica_connects_through_a_flood(said: str) -> None:
    async with internal_port() as (number, seen):
        with ExitStack() as sockets:
            link = ConnectingLink(KEY, 1 << 20, OTHER, ID)
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: link, "127.0.0.1", number)
            await until(lambda: len(seen.opened) == 1)
            for _ in range(FLOOD):
                connected(sockets, number).send(HELLOS[said] or b"")

            await link.ready
            await until(lambda: len(seen.opened) == FLOOD + 1)
            assert link.is_ready
            link.abort()
