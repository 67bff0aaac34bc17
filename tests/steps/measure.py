"""Which step of the event loop took longest, in CPU time of its thread: others on the machine do not count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager


class Longest:
    """The longest step so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.what = ""

    def take(self) -> tuple[float, str]:
        """It, and begin again."""
        taken = self.seconds, self.what
        self.seconds, self.what = 0.0, ""
        return taken


@contextmanager
def measured() -> Generator[Longest]:
    """Measure every callback of asyncio's own loop for the length of the block."""
    longest = Longest()
    run = asyncio.Handle._run  # pyright: ignore[reportPrivateUsage]

    def timed(self: asyncio.Handle) -> None:
        start = time.thread_time()
        run(self)
        spent = time.thread_time() - start
        if spent > longest.seconds:
            longest.seconds, longest.what = spent, repr(self)

    asyncio.Handle._run = timed  # pyright: ignore[reportPrivateUsage]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run  # pyright: ignore[reportPrivateUsage]
