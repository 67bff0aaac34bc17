"""Streams that are opened again when they end: slowly, and less and less often."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from mcp_workbench.timing import pause
from mcp_workbench.upstream.http.errors import Failed
from mcp_workbench.upstream.subscriptions import LASTED, LONGEST, SHORTEST
from mcp_workbench.wire.http_answer import Broken

CONNECTS = 6  # streams opened within a minute, whatever a server says
MINUTE = 60.0
SOONEST = pause(0.25)  # seconds before the rest of an answer is asked for


class Pace:
    """How often streams to one server may be opened."""

    def __init__(self) -> None:
        self.retry: int | None = None  # milliseconds that the server asked for
        self._opened: deque[float] = deque(maxlen=CONNECTS)

    def delay(self, failures: int, now: float) -> float:
        """Seconds until a stream may be opened again."""
        asked = (self.retry or 0) / 1000
        usual = min(max(asked, SHORTEST * 2 ** min(failures, 6)), LONGEST)
        return max(usual, self._crowded(now))

    def resumption(self, retry: int | None, now: float) -> float:
        """The same for the rest of an answer: somebody waits for it, so a server may ask for less."""
        asked = SHORTEST if retry is None else retry / 1000
        return max(min(max(asked, SOONEST), LONGEST), self._crowded(now))

    def _crowded(self, now: float) -> float:
        return self._opened[0] + MINUTE - now if len(self._opened) == CONNECTS else 0.0

    def opened(self, now: float) -> None:
        self._opened.append(now)

    async def turn(self) -> None:
        """Wait until a stream may be opened, and count it: others may have come in between."""
        while (left := self._crowded(time.monotonic())) > 0:  # noqa: ASYNC110 - a clock, no event
            await asyncio.sleep(left)
        self.opened(time.monotonic())


async def follow_stream(once: Callable[[], Awaitable[bool]], pace: Pace) -> AsyncGenerator[bool]:
    """Open a stream again and again until `once` says no. Yields before each but the first."""
    failures = 0
    while True:
        await pace.turn()
        began = time.monotonic()
        try:
            if not await once():
                return
        except Failed as failure:
            if not failure.loss.may_have_run and failure.loss.code != "rate_limited":
                return  # it was refused, and not only for now
        except Broken:
            pass
        now = time.monotonic()
        failures = 0 if now - began > LASTED else failures + 1
        await asyncio.sleep(pace.delay(failures - 1, now))
        yield True
