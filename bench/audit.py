"""What the audit costs: calls with it beside calls without it, in one interleaved run.

Prints one bar with a verdict and exits with 1 when it is missed.
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

import proc
from host import CONFIG, SERVER, Contender, GatewayFailed
from suites import Figures, Lineup, latency

OURS = str(Path(sys.executable).with_name("mcp-workbench"))
SERVE = (OURS, "serve", "--attach", "never", "--config", CONFIG)
CONTENDERS = [
    Contender("direct", (sys.executable, "-I", str(SERVER), "s0")),
    Contender("off", SERVE),
    Contender("on", (*SERVE, "--log-calls", f"{CONFIG}.calls")),
]
BAR = 1.25
ROWS = {
    "added latency per call, p50, us": "added_us",
    "CPU per call, one by one, us": "cpu_us",
    "CPU per call, 64 in flight, us": "cpu_at_once_us",
    "calls/s, 64 in flight": "calls_per_s",
}
BARS = ("added_us",)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="visits to each")
    parser.add_argument("--starts", type=int, default=5, metavar="N", help="of new processes")
    parser.add_argument("--one", action="store_true", help="all processes on one processor")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> Figures:
    """The medians over some starts: a process is faster or slower for its whole life."""
    taken: list[Figures] = []
    with proc.favoured(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for _ in range(options.starts):
            lineup = Lineup(CONTENDERS, Path(folder))
            taken.append(latency(lineup, options.rounds))
            if lineup.failures:
                raise GatewayFailed("\n".join(lineup.failures.values()))
            print(".", end="", file=sys.stderr, flush=True)
    return {
        name: {
            figure: median(each[name][figure] for each in taken)
            for figure in ROWS.values()
            if figure in taken[0][name]
        }
        for name in taken[0]
    }


def main() -> int:
    options = arguments()
    if options.one and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        figures = measure(options)
    except GatewayFailed as reason:
        print(reason, file=sys.stderr)
        return 1
    missed = False
    print(f"\n{'':<34}{'off':>10}{'on':>10}{'on/off':>9}")
    for name, figure in ROWS.items():
        off, on = figures["off"].get(figure), figures["on"].get(figure)
        if off is None or on is None:
            continue
        verdict = ""
        if figure in BARS:
            verdict = "kept" if on <= BAR * off else "MISSED"
            missed |= verdict == "MISSED"
        print(f"{name:<34}{off:>10,.1f}{on:>10,.1f}{on / off:>9.2f} {verdict}".rstrip())
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
