"""Stands between replicas and their engine, or before a replica's internal port: slow, talking nonsense, or closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator

Answer = Callable[[bytes], bytes]  # what is said instead of the engine's replies to these commands
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Passes bytes on in both directions, unless it is told otherwise. It has a thread of its own."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._listens = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = 0  # connections
        self.port = 0
        self.delay = 0.0  # seconds before each reply
        self.answer: Answer | None = None
        self.is_closed = False  # nobody gets through
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def start(self) -> None:
        self._thread.start()
        self._listens.wait()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        async with server:
            await self._ended.wait()
        self._cut()
        while self._passing:  # noqa: ASYNC110 - each of them ends at once now
            await asyncio.sleep(0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._passing += 1
        try:
            with contextlib.suppress(OSError):
                if not self.is_closed:
                    server = await asyncio.open_connection("127.0.0.1", self._target)
                    await self._pass((reader, writer), server)
        finally:
            await _closed(writer)
            self._passing -= 1

    async def _pass(self, client: Streams, server: Streams) -> None:
        writers = {client[1], server[1]}
        self._writers |= writers
        pumps = [
            asyncio.create_task(self._commands(client, server[1])),
            asyncio.create_task(self._replies(server[0], client[1])),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._writers -= writers
        await _closed(server[1])

    async def _commands(self, client: Streams, server: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await client[0].read(1 << 16):
                if self.answer is not None:
                    client[1].write(self.answer(data))
                else:
                    server.write(data)

    async def _replies(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await server.read(1 << 16):
                await asyncio.sleep(self.delay)
                if self.answer is None:
                    client.write(data)

    def _cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    def close(self) -> None:
        """From now on nobody gets through, and who had got through is cut off."""
        self.is_closed = True
        self._loop.call_soon_threadsafe(self._cut)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._loop.close()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.contextmanager
def proxy_to(port: int) -> Generator[Proxy]:
    proxy = Proxy(port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.end()
