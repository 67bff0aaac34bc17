"""How the work of a function grows with what it is fed; no time is ever asserted, only ratios."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

TIMES = 4  # the largest input is as much larger as the smallest
SLACK = 3.0  # times as long as in proportion: memory gets slower with size, and machines are busy
NOISE = 0.01  # seconds of CPU; what takes less is not measured
RUNS = 2  # of which the quickest counts
TURNS = 8  # at most, where two are compared


def cost(work: Callable[[], Any], enough: float = 0.0) -> float:
    """Seconds of CPU, of this thread alone, without a look at all that other tests have left.

    Where a run takes no more than `enough`, that it could be quicker yet is not of interest.
    """
    best = float("inf")
    for _ in range(RUNS):
        best = min(best, _once(work))
        if best <= enough:
            break
    return best


def ratio(work: Callable[[], Any], other: Callable[[], Any], enough: float) -> float:
    """How many times as long as the other it takes, measured in turns.

    A machine that others share changes its speed within a second: of two that are measured one after the
    other, one may seem to take twice as long. Where the ratio is no more than `enough`, the turns end.
    """
    best = least = float("inf")
    for turn in range(1, TURNS + 1):
        least = min(least, _once(other))
        best = min(best, _once(work))
        if turn >= RUNS and best <= enough * least:
            break
    return best / least


def _once(work: Callable[[], Any]) -> float:
    gc.disable()
    try:
        start = time.thread_time()
        work()
        return time.thread_time() - start
    finally:
        gc.enable()


def assert_linear(work: Callable[[Any], Any], made: Callable[[int], Any], largest: int) -> None:
    """At a quarter, the half and the whole of `largest`, the work grows as its input does, or less."""
    sizes = (largest // TIMES, largest // 2, largest)
    costs = {sizes[0]: cost(partial(work, made(sizes[0])))}
    for size in sizes[1:]:
        allowed = SLACK * (size / sizes[0]) * max(costs[sizes[0]], NOISE)
        costs[size] = cost(partial(work, made(size)), enough=allowed)
        assert costs[size] <= allowed, f"CPU seconds by size: {costs}"


def peak(work: Callable[[], Any]) -> int:
    """Bytes that were taken at most, beside what was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def steps_of(work: Awaitable[Any]) -> tuple[float, float]:
    """Seconds of CPU that the loop's thread takes for this: in all, and at most between two turns of another."""
    task = asyncio.ensure_future(work)
    longest = 0.0
    gc.disable()
    try:
        first = since = time.thread_time()
        while not task.done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, since = max(longest, now - since), now
    finally:
        gc.enable()
    await task
    return since - first, longest


def is_linear(make: Callable[[int], Callable[[], Any]], size: int) -> tuple[bool, str]:
    """Does a run of TIMES the size take TIMES as long at most? And what was measured."""
    small = cost(make(size))
    large = cost(make(size * TIMES), enough=TIMES * SLACK * small)
    measured = f"{size}: {small * 1e3:.2f} ms, {size * TIMES}: {large * 1e3:.2f} ms"
    return large <= TIMES * SLACK * small, measured
