"""Servers that nobody uses are stopped after a while, where their entry says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mcp_workbench.downstream.connection import Connection

LOOKS = 4  # at each server within its time: it is stopped at most a quarter of that late


class Rests:
    """Looks at such servers from time to time; one timer each."""

    def __init__(self, is_needed: Callable[[Connection], bool]) -> None:
        self._is_needed = is_needed
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def watch(self, connection: Connection) -> None:
        """Look at it from now on, where its entry says so."""
        seconds = connection.spec.idle_timeout / LOOKS
        if not seconds or connection in self._timers:
            return
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(seconds, self._look, connection)

    def end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _look(self, connection: Connection) -> None:
        self._timers.pop(connection, None)
        if connection.over:
            return
        talk, now = connection.conversation, time.monotonic()
        unused = connection.wellbeing.unused_for(talk, now)
        is_used = not connection.usable or self._is_needed(connection)
        if is_used or unused < connection.spec.idle_timeout:
            self.watch(connection)
        else:
            connection.resting = True
            seconds = connection.spec.idle_timeout
            connection.ending = f"stopped after {seconds:g} s without a call (idleTimeout)"
            connection.stop()
