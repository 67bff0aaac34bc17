"""The connection to a real engine: commands, its absence, its return, and wrong settings."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from mcp_workbench.cluster import engine as engine_module
from mcp_workbench.cluster.engine import Engine, EngineAway, Script
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.config.cluster_settings import EngineAddress
from mcp_workbench.transport.tasks import task_scope
from tests.kit.valkey import Valkey, free_port, valkey

PATIENCE = 20.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    with valkey(tmp_path) as running:
        yield running


@asynccontextmanager
async def connected(address: EngineAddress) -> AsyncGenerator[Engine]:
    async with task_scope() as scope:
        engine = Engine(address, "wb")
        scope.start(engine.run(), "engine")
        yield engine


def at(server: Valkey) -> EngineAddress:
    return EngineAddress("127.0.0.1", server.port)


def test_commands_and_scripts_get_their_replies(server: Valkey) -> None:
    async def scene() -> None:
        async with connected(at(server)) as engine:
            await engine.ready(PATIENCE)
            assert engine.key("s", "1") == b"wb:s:1"
            await engine.ask("SET", engine.key("a"), b"x\r\ny")
            assert await engine.read(engine.key("a")) == b"x\r\ny"
            assert await engine.read(engine.key("a"), most=2) is None
            assert await engine.read(engine.key("none")) is None
            script = Script("return {KEYS[1], ARGV[1]}")
            for _ in range(2):
                assert await engine.run_script(script, [b"k"], 7) == [b"k", b"7"]
            replies = await engine.ask_all([("INCR", "n"), ("LPUSH", "n", "x"), ("INCR", "n")])
            assert replies[0] == 1
            assert isinstance(replies[1], EngineError)
            assert replies[2] == 2
            assert await engine.read(b"n") == b"2"

    asyncio.run(scene())


def test_a_thousand_commands_at_once_are_answered_in_order(server: Valkey) -> None:
    async def scene() -> None:
        async with connected(at(server)) as engine:
            await engine.ready(PATIENCE)
            replies = [engine.send("ECHO", str(i)) for i in range(1000)]
            assert [int(await reply) for reply in replies] == list(range(1000))

    asyncio.run(scene())


def test_an_engine_that_ends_is_away_at_once_and_found_again(server: Valkey) -> None:
    async def scene() -> None:
        async with connected(at(server)) as engine:
            changes: list[bool] = []
            gone = asyncio.Event()

            def changed(ready: bool) -> None:
                changes.append(ready)
                if not ready:
                    gone.set()

            engine.on_change.append(changed)
            await engine.ready(PATIENCE)
            server.stop()
            async with asyncio.timeout(PATIENCE):
                await gone.wait()
            with pytest.raises(EngineAway, match="is away"):
                await engine.ask("PING")
            server.start()
            await engine.ready(PATIENCE)
            assert await engine.ask("PING") == b"PONG"
            assert changes == [True, False, True]

    asyncio.run(scene())


def test_an_engine_that_hangs_fails_its_commands(
    server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "COMMAND_TIME", 0.3)

    async def scene() -> None:
        async with connected(at(server)) as engine:
            await engine.ready(PATIENCE)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                with pytest.raises(EngineAway, match="did not answer"):
                    await engine.ask("PING")
                with pytest.raises(EngineAway):
                    await engine.ask("PING")
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await engine.ready(PATIENCE)
            assert await engine.ask("PING") == b"PONG"

    asyncio.run(scene())


def test_a_wrong_password_is_an_error_at_once_and_is_not_shown(tmp_path: Path) -> None:
    async def scene(address: EngineAddress) -> str:
        async with connected(address) as engine:
            with pytest.raises(EngineAway) as caught:
                await engine.ready(PATIENCE)
            return str(caught.value)

    with valkey(tmp_path, "correct-horse") as server:
        wrong = msgspec.structs.replace(at(server), password="battery-staple")
        text = asyncio.run(scene(wrong))
        assert "WRONGPASS" in text
        assert "battery-staple" not in text
        assert "NOAUTH" in asyncio.run(scene(at(server)))


def test_no_engine_is_reported_with_the_systems_reason() -> None:
    async def scene() -> str:
        async with connected(EngineAddress("127.0.0.1", free_port())) as engine:
            with pytest.raises(EngineAway) as caught:
                await engine.ready(0.3)
            return str(caught.value)

    assert "connection refused" in asyncio.run(scene())


def test_something_else_on_the_port_is_no_engine() -> None:
    async def scene() -> str:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await reader.read()
            writer.close()

        other = await asyncio.start_server(speak, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        async with other, connected(EngineAddress("127.0.0.1", port)) as engine:
            with pytest.raises(EngineAway) as caught:
                await engine.ready(1.0)
            return str(caught.value)

    assert "no Valkey" in asyncio.run(scene())
