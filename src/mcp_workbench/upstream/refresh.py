"""Lists that a live server says have changed are read again, gently."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from mcp_workbench.timing import pause
from mcp_workbench.upstream.primitives import Offers
from mcp_workbench.upstream.tools import Wares
from mcp_workbench.wire.envelope import Envelope
from mcp_workbench.wire.tasks import TaskScope, task_scope

TOOLS_CHANGED = "notifications/tools/list_changed"
GATHER = 0.1  # seconds: servers announce one change several times
REFRESH_PAUSE = pause(1.0)  # seconds between two listings, however often a server announces


def took_notice(wares: Wares, offers: Offers, message: Envelope) -> bool:
    """Is there now something to read again?"""
    if message.method == TOOLS_CHANGED:
        wares.stale = True
        return True
    return offers.noticed(message)


async def read_again(wares: Wares, offers: Offers, refresh: Callable[[], Awaitable[None]]) -> None:
    """Read what has changed, until nothing has."""
    while wares.stale or offers.stale:
        again = wares.listed_at + REFRESH_PAUSE
        await asyncio.sleep(max(GATHER, again - time.monotonic()))
        if wares.stale:
            await refresh()
        await offers.refresh()


class Rereading:
    """Readings of a live server's tools: one at a time, for all who want one meanwhile."""

    def __init__(self, wares: Wares) -> None:
        self._scope: TaskScope | None = None
        self._wares = wares
        self._under_way: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """The server takes requests for the length of the block."""
        async with task_scope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    async def done(self, read: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        """Wait for a list that is as new as what the server has announced, for so long at most.

        That may be the reading that is under way. If it began before the last announcement, it is
        the next one, which all share who have waited for this one.
        """
        until = time.monotonic() + seconds
        if self._under_way is not None and self._wares.stale:
            await asyncio.wait([self._under_way], timeout=seconds)
        if self._under_way is None and self._scope is not None:
            self._wares.begin()  # now, and not when the task has its first turn
            self._under_way = self._scope.start(read(), "list tools")
            self._under_way.add_done_callback(self._ended)
        if self._under_way is not None:  # whoever leaves early leaves it to the others
            await asyncio.wait([self._under_way], timeout=max(0.0, until - time.monotonic()))

    def _ended(self, reading: asyncio.Task[None]) -> None:
        self._under_way = None
