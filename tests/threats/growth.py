"""How the work and the memory of a reader grow with what it is given. Ratios only: machines differ."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable

TIMES = 4  # as large, from one size to the next
SLACK = 3.0  # of linear growth: caches, and whoever else is using the machine
TRIES = 3

Run = Callable[[], object]


def cpu(make: Callable[[], Run]) -> float:
    """Seconds of processor time that a run takes; `make` prepares it. The best of some tries."""
    best = float("inf")
    for _ in range(TRIES):
        run = make()
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            run()
            best = min(best, time.process_time() - start)
        finally:
            gc.enable()
    return best


def is_linear(make: Callable[[int], Run], size: int) -> tuple[bool, str]:
    """Does a run of TIMES the size take no more than TIMES as long? And what was measured."""
    small = cpu(lambda: make(size))
    large = cpu(lambda: make(size * TIMES))
    told = f"{size}: {small * 1e3:.2f} ms, {size * TIMES}: {large * 1e3:.2f} ms"
    return large <= TIMES * SLACK * small, told


def memory(run: Run) -> int:
    """The most bytes that a run held at a time, beyond those that were there before."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
