"""A host for long runs: several connections to one port, one call at a time on each."""

from __future__ import annotations

from typing import Any, Self

from tests.kit.http_host import Peer, Port, Session
from tests.kit.results import Message, use_tool


class BusyHost:
    """One host: a legacy session, or a modern one that has none. All count alike, so their ids collide."""

    def __init__(self, port: int, *, modern: bool = False) -> None:
        self._port = Port(port)
        self._modern = modern
        self._session: Session | None = None
        self._peers: list[Peer] = []

    async def open(self, connections: int = 1) -> Self:
        self._peers = [await self._port.connect() for _ in range(connections)]
        if not self._modern:
            self._session = await self._port.open()
        return self

    async def use(
        self, server: str, tool: str, arguments: dict[str, Any], connection: int = 0
    ) -> Message:
        """The result of a call."""
        peer = self._peers[connection]
        peer.send(self._request(use_tool(server, tool, arguments)))
        return (await peer.answer()).message["result"]

    def _request(self, params: Message) -> bytes:
        if self._session is None:
            return self._port.request(*self._port.modern("tools/call", params))
        return self._session.request(self._session.ask("tools/call", params))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.post(b"", method="DELETE")
        self._port.close()
