"""How a server over HTTP is met: the modern question, the legacy greeting, and that one again."""

from __future__ import annotations

import asyncio

import msgspec

from mcp_workbench.downstream.http_exchange import Asked, Exchange
from mcp_workbench.downstream.http_faults import Failed
from mcp_workbench.downstream.http_headers import modern_headers
from mcp_workbench.downstream.http_road import Road
from mcp_workbench.downstream.waiters import Loss
from mcp_workbench.era.negotiate import INITIALIZE
from mcp_workbench.era.revision import MODERN
from mcp_workbench.wire import envelope
from mcp_workbench.wire.http_answer import Answer

INITIALIZED = "notifications/initialized"
NOT_HERE = (400, 404, 405)  # what servers of the old transport answer to a greeting


class Greeter:
    """Opens what the protocol calls a session, as often as a server forgets it."""

    def __init__(self, road: Road, exchange: Exchange) -> None:
        self._road = road
        self._exchange = exchange
        self._greeting = msgspec.Raw(b"{}")  # what we said of ourselves
        self._renewing = asyncio.Lock()

    async def discover(self, asked: Asked) -> None:
        more = modern_headers(asked.method, asked.params, {})
        more += b"MCP-Protocol-Version: %b\r\n" % MODERN.encode()
        answer = await self._road.introduce(asked.frame, more)
        await self._hear(asked, answer)

    async def greet(self, asked: Asked) -> Answer | None:
        """Say hello; an answer that may mean another transport is handed back unread."""
        self._greeting = asked.params
        answer = await self._road.introduce(asked.frame)
        if answer.status in NOT_HERE:
            return answer
        await self._hear(asked, answer)
        return None

    async def renew(self, forgotten: str) -> bool:
        """Open a session again; several requests that find theirs gone share the new one."""
        async with self._renewing:
            if self._road.session != forgotten:
                return False
            frame = envelope.request(0, INITIALIZE, bytes(self._greeting))
            again = Asked(0, INITIALIZE, frame, self._greeting)  # our own numbers begin at 1
            again.quiet = True
            await self._hear(again, await self._road.introduce(frame))
            if again.refused:
                reason = "the server forgot the session and opens no other"
                raise Failed(Loss("session_lost", reason, may_have_run=False))
            self._exchange.forget()
            await self._road.tell(envelope.notification(INITIALIZED))
            return True

    async def _hear(self, asked: Asked, answer: Answer) -> None:
        try:
            await self._exchange.hear(asked, answer)
        finally:
            answer.close()
