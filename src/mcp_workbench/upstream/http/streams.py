"""Event streams that are reopened when they end, with backoff and at a limited rate."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

from mcp_workbench.timing import pause
from mcp_workbench.transport.http.client_response import ExchangeFailed
from mcp_workbench.upstream.responses import RequestFailed
from mcp_workbench.upstream.subscriptions import LASTED, LONGEST, SHORTEST

CONNECTS = 6  # streams opened per minute, whatever the server asks for
MINUTE = 60.0
SOONEST = pause(0.25)  # seconds before the rest of a response is requested


class Pace:
    """How often streams to one server may be opened."""

    def __init__(self) -> None:
        self.retry: int | None = None  # milliseconds that the server asked for
        self._opened: deque[float] = deque(maxlen=CONNECTS)

    def delay(self, failures: int, now: float) -> float:
        """Seconds until a stream may be reopened."""
        requested = (self.retry or 0) / 1000
        usual = min(max(requested, SHORTEST * 2 ** min(failures, 6)), LONGEST)
        return max(usual, self._rate_limit(now))

    def resumption(self, retry: int | None, now: float) -> float:
        """The same for the rest of a response: a call waits for it, so the server may ask for less."""
        requested = SHORTEST if retry is None else retry / 1000
        return max(min(max(requested, SOONEST), LONGEST), self._rate_limit(now))

    def _rate_limit(self, now: float) -> float:
        return self._opened[0] + MINUTE - now if len(self._opened) == CONNECTS else 0.0

    def opened(self, now: float) -> None:
        self._opened.append(now)

    async def wait_turn(self) -> None:
        """Wait until a stream may be opened, and count it."""
        while (left := self._rate_limit(time.monotonic())) > 0:  # noqa: ASYNC110 - a clock, no event
            await asyncio.sleep(left)
        self.opened(time.monotonic())


async def follow_stream(once: Callable[[], Awaitable[bool]], pace: Pace) -> AsyncGenerator[bool]:
    """Reopen a stream until `once` returns False. Yields before each attempt but the first."""
    failures = 0
    while True:
        await pace.wait_turn()
        opened_at = time.monotonic()
        try:
            if not await once():
                return
        except RequestFailed as failed:
            if not failed.failure.may_have_run and failed.failure.code != "rate_limited":
                return  # refused permanently
        except ExchangeFailed:
            pass
        now = time.monotonic()
        failures = 0 if now - opened_at > LASTED else failures + 1
        await asyncio.sleep(pace.delay(failures - 1, now))
        yield True
