"""Lists that a live server says have changed are read again, gently."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from mcp_workbench.downstream.offers import Offers
from mcp_workbench.downstream.wares import Wares
from mcp_workbench.timing import pause
from mcp_workbench.wire.envelope import Envelope

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
