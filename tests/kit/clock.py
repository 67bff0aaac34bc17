"""Waiting: always for something, and never without a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

PATIENCE = 20.0  # seconds; the bound of every open wait, far above what a slow machine needs


def eventually(true: Callable[[], bool], what: str) -> None:
    """Wait, within bounds, for something outside that sends no event."""
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.005)


async def until(true: Callable[[], bool]) -> None:
    """The same without stopping the loop; the bound is the caller's."""
    while not true():  # noqa: ASYNC110 - a file or another process sends no event
        await asyncio.sleep(0.005)


def within(seconds: float, true: Callable[[], bool]) -> bool:
    """Does it come true in this time? What the machine has kept us waiting itself does not count."""
    until = time.monotonic() + seconds
    pause = 0.005
    while not true():
        before = time.monotonic()
        if before > until:
            return False
        time.sleep(pause)
        until += max(0.0, time.monotonic() - before - 2 * pause)
        pause = min(pause * 1.5, 0.05)
    return True


@contextmanager
def takes_at_most(seconds: float) -> Generator[None]:
    """The block takes no longer than the row says, several times over: machines are slow."""
    since = time.monotonic()
    yield
    took = time.monotonic() - since
    assert took < 5 * seconds + 2, f"{took:.2f} s instead of {seconds:g} s"
