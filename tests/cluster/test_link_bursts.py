"""What many hosts send through one link at the same moment, and what strangers do at the other end of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from mcp_workbench.cluster.link import DATA, AcceptedLink, ConnectingLink
from tests.cluster.test_hostile_values import ID, KEY, OTHER, Recorder
from tests.kit.clock import PATIENCE, until

MESSAGE = 1 << 20
BODIES = 12  # together more than one piece may have, and than may be unread by the other side


class Waiting:
    """Who has sent a request, and hears of a broken link."""

    def __init__(self) -> None:
        self.is_lost = False
        self.received: list[bytes] = []

    def data(self, payload: bytes) -> None:
        self.received.append(payload)

    def end(self, payload: bytes) -> None: ...
    def aborted(self) -> None: ...
    def refused(self, payload: bytes) -> None: ...

    def lost(self) -> None:
        self.is_lost = True


@asynccontextmanager
async def port(recorder: Recorder) -> AsyncGenerator[int]:
    """The internal port of a replica."""

    def accept() -> AcceptedLink:
        recorder.links.append(AcceptedLink(KEY, MESSAGE, ID, recorder))
        return recorder.links[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    async with asyncio.timeout(PATIENCE), server:
        yield server.sockets[0].getsockname()[1]
        for link in recorder.links:
            link.abort()


async def test_large_requests_of_one_moment_leave_the_link_whole() -> None:
    recorder, waiting = Recorder(), Waiting()
    async with port(recorder) as number:
        link = ConnectingLink(KEY, MESSAGE, OTHER, ID)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: link, "127.0.0.1", number)
        await link.ready
        bodies = [bytes([n]) * MESSAGE for n in range(BODIES)]
        for body in bodies:
            link.open(body, waiting)

        assert await link.ask(b"there?", PATIENCE) == b"there?"
        assert recorder.opened_streams == bodies
        assert not waiting.is_lost
        link.abort()


async def test_a_link_receives_nothing_while_a_stream_is_not_done_with_what_arrived() -> None:
    recorder, waiting = Recorder(), Waiting()
    async with port(recorder) as number:
        link = ConnectingLink(KEY, MESSAGE, OTHER, ID)
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: link, "127.0.0.1", number)
        await link.ready
        stream = link.open(b"", waiting)
        assert await link.ask(b"there?", PATIENCE) == b"there?"
        link.wait(stream, waits=True)
        link.wait(stream + 1, waits=True)
        link.wait(stream + 1, waits=False)
        for _ in range(BODIES):
            recorder.links[0].frame(DATA, stream, b"x" * (MESSAGE // 2))
            await asyncio.sleep(0)
        await until(lambda: recorder.links[0].backlog > MESSAGE)  # nobody reads it
        assert waiting.received == []

        link.wait(stream, waits=False)
        await until(lambda: len(waiting.received) == BODIES)
        assert not waiting.is_lost
        link.abort()


async def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    recorder = Recorder()
    async with port(recorder) as number:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    assert len(recorder.links) == 20
    assert len(caplog.records) <= 1
