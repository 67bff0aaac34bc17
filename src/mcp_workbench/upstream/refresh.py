"""Refresh: lists that a server announces as changed are read again, at a limited rate."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from mcp_workbench.timing import pause
from mcp_workbench.transport.jsonrpc import Envelope
from mcp_workbench.transport.tasks import TaskScope, task_scope
from mcp_workbench.upstream.primitives import Primitives
from mcp_workbench.upstream.tools import TOOLS_CHANGED, ToolList

GATHER = 0.1  # seconds to wait for more announcements of the same change
REFRESH_PAUSE = pause(1.0)  # seconds between two listings, however often a server announces changes


def mark_stale(tools: ToolList, primitives: Primitives, message: Envelope) -> bool:
    """Take a notification; is there now a list to read again?"""
    if message.method == TOOLS_CHANGED:
        tools.stale = True
        return True
    return primitives.received(message)


async def refresh_stale(
    tools: ToolList, primitives: Primitives, refresh: Callable[[], Awaitable[None]]
) -> None:
    """Read the stale lists again until none is stale."""
    while tools.stale or primitives.stale:
        earliest = tools.listed_at + REFRESH_PAUSE
        await asyncio.sleep(max(GATHER, earliest - time.monotonic()))
        if tools.stale:
            await refresh()
        await primitives.refresh()


class ToolRefresh:
    """Reads a server's tools again: one reading at a time, shared by all who ask meanwhile."""

    def __init__(self, tools: ToolList) -> None:
        self._scope: TaskScope | None = None
        self._tools = tools
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._reading is not None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Allow readings for the duration of the block."""
        async with task_scope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    async def wait(self, read: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
        """Wait, at most `seconds`, for a list that is as new as the server's last announcement.

        A reading that began before that announcement does not count: the next one does, and all who
        waited share it.
        """
        until = time.monotonic() + seconds
        if self._reading is not None and self._tools.stale:
            await asyncio.wait([self._reading], timeout=seconds)
        if self._reading is None and self._scope is not None:
            self._tools.begin()  # now, not when the task first runs
            self._reading = self._scope.start(read(), "list tools")
            self._reading.add_done_callback(self._ended)
        if self._reading is not None:  # it goes on for the others where one leaves early
            await asyncio.wait([self._reading], timeout=max(0.0, until - time.monotonic()))

    def _ended(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
