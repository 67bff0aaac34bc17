"""How fast we are: us beside the limit relay and a gateway on the SDK, in one interleaved run.

Prints the bars with a verdict for each, writes bench/latest.json, and exits with 1 when one is missed.
bench/README.md says how to read it.
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import argparse
import os
import platform
import shlex
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
import proc
from bars import ROWS, Bar, Results, Row, Verdict, judge
from host import CONFIG, PORT, SERVER, Contender, GatewayFailed
from suites import Lineup, latency, open_many, startup

HERE = Path(__file__).resolve().parent
SUITES = {"latency": latency, "startup": startup, "open": open_many}
ROUNDS = {"latency": 30, "startup": 9, "open": 7}
QUICK = {"latency": 6, "startup": 3, "open": 2}
COLUMNS = ("direct", "limit", "sdk", "ours")


def arguments() -> argparse.Namespace:
    ours = Path(sys.executable).with_name("mcp-workbench")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", nargs="?", choices=SUITES, help="one suite (default: all)")
    parser.add_argument("--rounds", type=int, metavar="N", help="visits to each gateway")
    parser.add_argument("--quick", action="store_true", help="few rounds: a glance, no proof")
    parser.add_argument("--no-sdk", action="store_true", help="leave the slow gateway out")
    parser.add_argument(
        "--http", action="store_true", help="hosts over HTTP (without the slow gateway)"
    )
    parser.add_argument(
        "--http-servers",
        action="store_true",
        help="a server over HTTP behind them (latency only, without the slow gateway)",
    )
    parser.add_argument(
        "--ours", metavar="CMD", default=shlex.quote(str(ours)), help="default: %(default)s"
    )
    return parser.parse_args()


def contenders(options: argparse.Namespace) -> list[Contender]:
    """The bare server, the two yardsticks and us; all on the interpreter that runs the bench."""
    python = sys.executable
    port = ("--http", PORT) if options.http else ()
    over_http = options.http or options.http_servers
    limit = (python, "-I", str(HERE / "limit_relay.py"), "--config", CONFIG, *port)
    slow = (python, "-I", str(HERE / "sdk_gateway.py"), "--config", CONFIG)
    sdk = [] if options.no_sdk or over_http else [Contender("sdk", slow)]
    return [
        Contender("direct", (python, "-I", str(SERVER), "s0", *((PORT,) if over_http else ()))),
        Contender("limit", limit),
        *sdk,
        Contender("ours", (*shlex.split(options.ours), "serve", "--config", CONFIG, *port)),
    ]


def measure(options: argparse.Namespace) -> tuple[Results, dict[str, str]]:
    """All figures by contender, and why anyone fell out."""
    results: Results = {}
    prefix = "mcp-workbench-bench-"
    with (
        proc.favoured(),
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder,
    ):
        lineup = Lineup(contenders(options), Path(folder))
        if options.http_servers:
            SUITES["latency"] = partial(latency, to_url=True)
            options.suite = "latency"
        for name in [options.suite] if options.suite else SUITES:
            rounds = options.rounds or (QUICK if options.quick else ROUNDS)[name]
            print(f"{name}: {rounds} rounds ...", file=sys.stderr, flush=True)
            for contender, figures in SUITES[name](lineup, rounds).items():
                results.setdefault(contender, {}).update(figures)
        return results, lineup.failures


def number(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return "-"
    places = next((places for places, from_ in enumerate((100, 10, 1)) if value >= from_), 3)
    return f"{value:,.{places}f}"


def line(row: Row, results: Results) -> str | None:
    """The row as text; nothing when its suite did not run."""
    if not any(row.figure in figures for figures in results.values()):
        return None
    values = [number(results.get(name, {}).get(row.figure)) for name in COLUMNS]
    bars = {bar.against: bar for bar in row.bars}
    ratios = []
    for against in ("limit", "sdk"):
        bar = bars.get(against) or Bar(against)
        bound = str(bars.get(against) or (bars.get(None, "") if against == "limit" else ""))
        ratios += [number(bar.ratio(row.figure, results)), bound]
    verdicts = judge(row, results)
    missed = not all(verdict.kept for verdict in verdicts)
    word = "MISSED" if missed else "kept" if verdicts else "not measured" if row.bars else ""
    return layout(row.name, values, ratios, word)


def layout(name: str, values: list[str], ratios: list[str], verdict: str) -> str:
    left = "".join(f"{value:>9}" for value in values)
    limit, limit_bar, sdk, sdk_bar = ratios
    right = f"{limit:>10} {limit_bar:<11}{sdk:>8} {sdk_bar:<7}"
    return f"{name:<37}{left}{right} {verdict}".rstrip()


def title(options: argparse.Namespace) -> str:
    return f"{'HTTP' if options.http else 'stdio'} to {'HTTP' if options.http_servers else 'stdio'}"


def report(title: str, results: Results, failures: dict[str, str]) -> list[Verdict]:
    print()
    print(layout(title, list(COLUMNS), ["x limit", "bar", "x sdk", "bar"], "verdict"))
    for text in filter(None, (line(row, results) for row in ROWS)):
        print(text)
    if not proc.KNOWN:
        print("\nMemory and CPU come from /proc, so they are measured on Linux only.")
    for reason in failures.values():
        print(f"\n{reason}")
    return [verdict for row in ROWS for verdict in judge(row, results)]


def leave(signal_number: int, _: object) -> None:
    """Unwind once: every `with` on the way out ends its processes and removes its folder."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + signal_number)


def main() -> int:
    if sys.platform == "win32":
        print("The bench speaks through POSIX pipes: run it on Linux or macOS.", file=sys.stderr)
        return 2
    options = arguments()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, leave)
    began, load = time.time(), os.getloadavg()
    try:
        results, failures = measure(options)
    except GatewayFailed as reason:
        print(reason, file=sys.stderr)
        return 1
    verdicts = report(title(options), results, failures)
    run = {
        "when": time.strftime("%F %T", time.localtime(began)),
        "seconds": round(time.time() - began),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load_before": load,
        "results": results,
        "verdicts": verdicts,
        "failures": failures,
    }
    (HERE / "latest.json").write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2))
    return 1 if failures or not all(verdict.kept for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
