"""What traces cost a call: p50 and CPU time with `tracing` and nothing sampled, beside those without `tracing`.

    python bench/tracing.py [CALLS [RUNS]]

The workbenches run side by side, and their calls alternate in short blocks, so that all see the same machine. Nothing is sent
anywhere: no call is sampled.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from page import Bench

BLOCK = 100  # calls of one block
BAR = 1.1  # times the p50 without traces


class Sampled(Bench):
    """With traces, sampled as OTEL_TRACES_SAMPLER says."""

    settings = {"tracing": True}  # noqa: RUF012 - never changed


class AlwaysOff(Sampled):
    variables = {"OTEL_TRACES_SAMPLER": "always_off"}  # noqa: RUF012


class ParentOff(Sampled):
    variables = {"OTEL_TRACES_SAMPLER": "parentbased_always_off"}  # noqa: RUF012


KINDS: dict[str, type[Bench]] = {
    "without": Bench,
    "always_off": AlwaysOff,
    "parentbased_always_off": ParentOff,
}


def measured(calls: int) -> dict[str, tuple[float, float]]:
    """Of each kind the p50 of a call, and its CPU time: microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        benches = {name: kind(Path(folder, name), 20) for name, kind in KINDS.items()}
        try:
            for bench in benches.values():
                for _ in range(BLOCK):
                    bench.call()
            return alternating(benches, calls)
        finally:
            for bench in benches.values():
                bench.end()


def alternating(benches: dict[str, Bench], calls: int) -> dict[str, tuple[float, float]]:
    times: dict[str, list[float]] = {name: [] for name in benches}
    before = {name: bench.cpu() for name, bench in benches.items()}
    for _ in range(max(calls // BLOCK, 1)):
        for name, bench in benches.items():
            times[name] += [bench.call() for _ in range(BLOCK)]
    return {
        name: (
            statistics.median(times[name]) * 1e6,
            (bench.cpu() - before[name]) / len(times[name]) * 1e6,
        )
        for name, bench in benches.items()
    }


def main(calls: int = 4000, runs: int = 5) -> None:
    ratios: dict[str, list[tuple[float, float]]] = {}
    for _ in range(runs):
        figures = measured(calls)
        whole, cpu = figures["without"]
        print(f"without: p50 {whole:.0f} µs, {cpu:.0f} µs of CPU", end="")
        for name, (p50, used) in figures.items():
            if name != "without":
                ratios.setdefault(name, []).append((p50 / whole, used / cpu))
                print(f"   {name}: {p50 / whole:.3f} x p50, {used / cpu:.3f} x CPU", end="")
        print(flush=True)
    for name, pairs in ratios.items():
        p50, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        held = "holds" if p50 <= BAR else "MISSED"
        print(
            f"{name}: {p50:.3f} x p50 (bar {BAR}: {held}), {cpu:.3f} x CPU, median of {runs} runs"
        )


if __name__ == "__main__":
    arguments: Any = map(int, sys.argv[1:3])
    main(*arguments)
