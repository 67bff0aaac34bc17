"""Idle timers: servers that nobody used for their idleTimeout are stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mcp_workbench.upstream.connection import Connection

CHECKS = 4  # per idleTimeout: a server is stopped at most a quarter of that late


class IdleTimers:
    """Stops servers that nobody used for their idleTimeout; one timer per connection."""

    def __init__(self, is_needed: Callable[[Connection], bool]) -> None:
        self._is_needed = is_needed
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def watch(self, connection: Connection) -> None:
        """Check this connection from now on, if it has an idleTimeout."""
        seconds = connection.spec.idle_timeout / CHECKS
        if not seconds or connection in self._timers:
            return
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(seconds, self._check, connection)

    def end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _check(self, connection: Connection) -> None:
        self._timers.pop(connection, None)
        if connection.over:
            return
        conversation, now = connection.conversation, time.monotonic()
        unused = connection.health.unused_for(conversation, now)
        is_used = not connection.usable or self._is_needed(connection)
        if is_used or unused < connection.spec.idle_timeout:
            self.watch(connection)
        else:
            connection.stopped_idle = True
            seconds = connection.spec.idle_timeout
            connection.ending = f"stopped after {seconds:g} s without a call (idleTimeout)"
            connection.stop()
