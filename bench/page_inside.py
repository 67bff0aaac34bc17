"""What an open page costs each call, timed inside the workbench: for machines that others use, too.

    python bench/page_inside.py [SECONDS [RUNS]]

`bench/page.py` compares two processes, which needs a quiet machine. Here the process itself times what it does only because
a page is open: after each call (before its answer there is one look at the clock), and in each turn for the page. Of the
calls, the slowest thousandth is left out, in which the process was interrupted; the times of the page are CPU times.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from page import RATE, Bench, Page, calls_for

_PROGRAM = """
import atexit, json, statistics, sys, time
import mcp_workbench.server.host_calls as host_calls
from mcp_workbench.cli.main import main
from mcp_workbench.ui.page_events import PageEvents

clock, observe, send = time.perf_counter, host_calls.observe, PageEvents._send
after, turns, empty = [], [], []

def timed(observers, call, outcome):
    began = clock()
    observe(observers, call, outcome)
    after.append(clock() - began)

async def timed_send(self):
    began = time.thread_time()
    await send(self)
    turns.append(time.thread_time() - began)

def report():
    for _ in range(10000):
        began = clock()
        empty.append(clock() - began)
    usual = sorted(after)[: int(len(after) * 0.999)]
    parts = sum(usual) / len(usual) - statistics.median(empty), sum(turns) / len(after)
    with open(sys.argv.pop(), "w") as file:
        json.dump([part * 1e6 for part in parts], file)

out = sys.argv[-1]
sys.argv = ["mcp-workbench", *sys.argv[1:-1]]
host_calls.observe, PageEvents._send = timed, timed_send
atexit.register(lambda: (sys.argv.append(out), report()))
sys.exit(main())
"""


class TimedBench(Bench):
    """A workbench that times itself."""

    def __init__(self, folder: Path, tools: int, *options: str) -> None:
        self.out = folder.parent / "times.json"
        self.program = folder.parent / "program.py"
        self.program.write_text(_PROGRAM)
        super().__init__(folder, tools, *options)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(self.program), *words, str(self.out)]


def measured(seconds: float) -> list[float]:
    """Microseconds per call: after its answer, and for the page."""
    with tempfile.TemporaryDirectory() as folder:
        bench = TimedBench(Path(folder, "paged"), 2000, "--ui")
        try:
            for _ in range(200):
                bench.call()
            page = Page(bench)
            page.follow("home,calls")
            page.get("home")
            calls_for(bench, seconds)
            time.sleep(1.0)
        finally:
            bench.end()
        times: Any = json.loads(bench.out.read_text())
        return times


def main(seconds: int = 6, runs: int = 5) -> None:
    sums: list[float] = []
    for _ in range(runs):
        after, page = measured(seconds)
        sums.append(after + page)
        print(f"{after:.1f} µs after the answer, {page:.1f} for the page", end=" ")
        print(f"= {sums[-1]:.1f} µs per call")
    median = statistics.median(sums)
    print(
        f"median of {runs} runs: {median:.1f} µs, {median * RATE / 1e4:.2f} % of a core at {RATE}/s"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
