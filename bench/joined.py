"""What joining costs: a host of a shared workbench beside a host alone, in one interleaved run.

Prints four bars with a verdict for each and exits with 1 when one is missed.
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import msgspec
import proc
from host import CONFIG, SERVER, Contender, GatewayFailed, Host
from suites import Lineup, latency

OURS = str(Path(sys.executable).with_name("mcp-workbench"))
# The least that a joiner on asyncio would be: it is up, and answers the first line.
BARE = """
import asyncio, sys
sys.stdin.buffer.readline()
sys.stdout.write('{"jsonrpc":"2.0","id":1,"result":{}}\\n'); sys.stdout.flush()
sys.stdin.buffer.read()
"""
CONTENDERS = [
    Contender("direct", (sys.executable, "-I", str(SERVER), "s0")),
    Contender("alone", (OURS, "serve", "--attach", "never", "--config", CONFIG)),
    Contender("joined", (OURS, "serve", "--attach", "always", "--config", CONFIG)),
]


class SharedLineup(Lineup):
    """Starts the shared workbench before the host that joins it."""

    def start(self, contender: Contender, stack: ExitStack, servers: int = 1) -> Host:
        host = super().start(contender, stack, servers)
        if contender.name == "joined":
            host.get_ready()
            [folder] = self._folder.glob("joined-*")
            proc.favour(msgspec.json.decode(_run(folder, "status"))["pid"])
            stack.callback(_down, folder)
        return host


def _run(folder: Path, word: str) -> str:
    return subprocess.run(
        [OURS, word, "--json", "--config", str(folder / "config.json")],
        env={**os.environ, "MCP_WORKBENCH_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _down(folder: Path) -> None:
    _run(folder, "down")


def starts(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the spawn to the answer to `initialize`, and the joiner's memory."""
    config = folder / "config.json"
    behind = {"s0": {"command": sys.executable, "args": ["-I", str(SERVER), "s0"]}}
    config.write_bytes(msgspec.json.encode({"toolboxes": {"box": {"mcpServers": behind}}}))
    proc.favour(msgspec.json.decode(_run(folder, "up"))["pid"])
    serve = [OURS, "serve", "--config", str(config)]
    commands = {
        "bare": [sys.executable, "-I", "-c", BARE],
        "joined": serve,
        "alone": [*serve, "--attach", "never"],
    }
    taken: dict[str, list[float]] = {name: [] for name in (*commands, "memory_mb")}
    try:
        for number in range(rounds):
            names = list(commands) if number % 2 == 0 else list(commands)[::-1]
            for name in names:
                with _started(commands[name], folder) as (child, since):
                    child.stdin.write(_INITIALIZE)
                    child.stdout.readline()
                    taken[name].append((time.perf_counter() - since) * 1e3)
                    if name == "joined" and proc.KNOWN:
                        taken["memory_mb"].append(proc.memory([child.pid])[0])
    finally:
        _down(folder)
    return taken


_INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)


@contextmanager
def _started(command: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    since = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "MCP_WORKBENCH_HOME": str(folder / "home")},
        bufsize=0,
    )
    try:
        yield child, since
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def _share_one_processor() -> None:
    """Where each of four processes runs is chance, and worth 40 µs: one for all of them is fair."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, metavar="N")
    parser.add_argument("--spread", action="store_true", help="over all processors")
    options = parser.parse_args()
    rounds = options.rounds
    if not options.spread:
        _share_one_processor()
    with (
        proc.favoured(),
        tempfile.TemporaryDirectory(prefix="mcp-workbench-bench-") as folder,
    ):
        (Path(folder) / "start").mkdir()
        start = {k: median(v) for k, v in starts(Path(folder) / "start", 2 * rounds).items() if v}
        lineup = SharedLineup(CONTENDERS, Path(folder))
        figures = latency(lineup, rounds)
    if lineup.failures:
        raise GatewayFailed(str(lineup.failures))
    alone, joined = figures["alone"], figures["joined"]
    rows = [
        ("start to initialize, ms", start["joined"], start["bare"], 1.3, "most"),
        ("memory of a joiner, MB", start.get("memory_mb", 0.0), 1.0, 20.0, "most"),
        ("added p50, µs", joined["added_us"], alone["added_us"], 2.0, "most"),
        ("calls/s at 64", joined["calls_per_s"], alone["calls_per_s"], 0.5, "least"),
    ]
    print(f"start alone {start['alone']:.1f} ms, bare {start['bare']:.1f} ms")
    missed = 0
    for name, ours, theirs, bar, way in rows:
        ratio = ours / theirs
        kept = ratio <= bar if way == "most" else ratio >= bar
        missed += not kept
        print(
            f"{name:28} {ours:10,.1f} {ratio:8.2f} (at {way} {bar})  {'kept' if kept else 'MISSED'}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
