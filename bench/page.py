"""What the web page costs: its API with many tools, and calls while a page is open beside calls without one.

    python bench/page.py [TOOLS [SECONDS [RUNS]]]

Two workbenches with the same server run side by side, one with an open page and one without; their calls alternate, so
that both see the same machine. Times are medians; the ratio is what counts. The share of a core is that of several runs.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT / "tests/ui/page_server.py"
BLOCK = 400  # calls of one block
ROUNDS = 20  # blocks of each
RATE = 1000  # calls per second, for the share of a core
TURN = 0.5  # seconds
PATHS = (
    "home",
    "tools?toolbox=dev",
    "tools?toolbox=dev&start=1800",
    "search?words=read+a+file&toolbox=dev",
    "server?toolbox=dev&server=many",
    "tool?toolbox=dev&server=many&tool=tool_0007",
    "calls?most=200",
    "numbers",
)


class Bench:
    """One workbench on a port."""

    settings: Mapping[str, Any] = {}  # more of the configuration
    variables: Mapping[str, str] = {}

    def __init__(self, folder: Path, tools: int, *options: str) -> None:
        folder.mkdir()
        config = folder / "workbench-config.json"
        entry = {"command": sys.executable, "args": [str(SERVER), "many", str(tools)]}
        boxes = {"dev": {"mcpServers": {"many": entry}}}
        config.write_text(json.dumps({"toolboxes": boxes, **self.settings}))
        config.chmod(0o600)
        argv = self.command("serve", "--http", "0", "--config", str(config), *options)
        env = {**os.environ, "MCP_WORKBENCH_HOME": str(folder / "state"), **self.variables}
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=env)
        assert self.process.stderr is not None
        lines = [self.process.stderr.readline() for _ in range(2 + bool(options))]
        text = "".join(lines)
        self.port = int(re.findall(r"127\.0\.0\.1:(\d+)/mcp", text)[0])
        self.address = "".join(re.findall(r"/ui/open/\S+", text))
        self.http = HTTPConnection("127.0.0.1", self.port)
        self.headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        self._number = 0
        info = {"name": "bench", "version": "1"}
        first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        self.send("initialize", first)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "mcp_workbench", *words]

    def send(self, method: str, params: Any) -> bytes:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.http.request("POST", "/mcp", json.dumps(message), self.headers)
        response = self.http.getresponse()
        body = response.read()
        if session := response.headers.get("mcp-session-id"):
            self.headers["mcp-session-id"] = session
        return body

    def call(self) -> float:
        """Seconds of one call."""
        target = {"toolbox": "dev", "server": "many", "tool": "tool_0001"}
        arguments = {"tool": target, "arguments": {"path": "src/main.py"}}
        since = time.perf_counter()
        self.send("tools/call", {"name": "use_tool", "arguments": arguments})
        return time.perf_counter() - since

    def cpu(self) -> float:
        """Seconds that its main thread has run."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=30)


class Page:
    """A browser, as far as the workbench notices one."""

    def __init__(self, bench: Bench) -> None:
        self._port = bench.port
        http = HTTPConnection("127.0.0.1", bench.port)
        http.request("GET", bench.address)
        response = http.getresponse()
        response.read()
        line = response.headers["set-cookie"]
        self.cookie = line.partition(";")[0]
        self.path = line.partition("Path=")[2].partition(";")[0]
        self.http = http
        self.received = 0

    def get(self, path: str) -> tuple[float, bytes]:
        since = time.perf_counter()
        self.http.request("GET", f"{self.path}api/{path}", headers={"cookie": self.cookie})
        response = self.http.getresponse()
        body = response.read()
        assert response.status == 200, body
        return time.perf_counter() - since, body

    def follow(self, topics: str) -> None:
        """Keep a stream of events open, and read it."""
        http = HTTPConnection("127.0.0.1", self._port)
        http.request(
            "GET", f"{self.path}api/events?topics={topics}", headers={"cookie": self.cookie}
        )
        response = http.getresponse()
        assert response.status == 200
        threading.Thread(target=self._read, args=(response,), daemon=True).start()

    def _read(self, response: HTTPResponse) -> None:
        while data := response.read1(1 << 16):
            self.received += len(data)


@contextmanager
def workbenches(tools: int) -> Generator[tuple[Bench, Bench]]:
    with tempfile.TemporaryDirectory() as folder:
        plain = Bench(Path(folder, "plain"), tools)
        paged = Bench(Path(folder, "paged"), tools, "--ui")
        try:
            yield plain, paged
        finally:
            plain.end()
            paged.end()


def api_times(page: Page) -> None:
    print("API, milliseconds (median, slowest of 30; bytes):")
    for path in PATHS:
        page.get(path)  # the first one computes what later ones keep
        times: list[float] = []
        body = b""
        for _ in range(30):
            seconds, body = page.get(path)
            times.append(seconds * 1000)
        print(f"  {path:45} {statistics.median(times):6.2f} {max(times):7.2f} {len(body):9,}")


def call_times(plain: Bench, paged: Bench) -> None:
    times: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(ROUNDS):
        for name, bench in (("without", plain), ("with", paged)):
            times[name] += [bench.call() for _ in range(BLOCK)]
    without, with_page = (statistics.median(times[name]) * 1000 for name in ("without", "with"))
    print(f"p50 of a call: {without:.3f} ms without, {with_page:.3f} ms with an open page", end="")
    print(f"   ratio {with_page / without:.3f}")


def calls_for(bench: Bench, seconds: float) -> int:
    """Make about RATE calls per second; returns how many there were."""
    since, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - since) < seconds:
        if done < spent * RATE:
            bench.call()
            done += 1
        else:
            time.sleep(0.0005)
    return done


def core_share(plain: Bench, paged: Bench, seconds: float) -> float:
    """What an open page adds in CPU time at RATE calls per second, in percent of a core.

    They are called in short turns, because a busy machine changes. What is done for the page after a turn
    counts, too: all that a process has run since the beginning does.
    """
    benches = (plain, paged)
    before = [bench.cpu() for bench in benches]
    calls = [0, 0]
    for turn in range(max(round(seconds / TURN), 1)):
        for number in (0, 1) if turn % 2 else (1, 0):
            calls[number] += calls_for(benches[number], TURN)
    time.sleep(1.0)
    each = [(benches[n].cpu() - before[n]) / calls[n] for n in (0, 1)]
    more = (each[1] - each[0]) * RATE * 100
    print(f"an open page adds {more:.2f} % of a core at {RATE} calls per second", end=" ")
    print(f"(a call costs {each[0] * 1e6:.0f} µs of CPU without it)", flush=True)
    return more


def measured(tools: int, seconds: float, *, whole: bool) -> float:
    """One run, with processes of its own: where their memory lies matters, and differs."""
    with workbenches(tools) as (plain, paged):
        for bench in (plain, paged):
            for _ in range(200):
                bench.call()
        page = Page(paged)
        page.follow("home,calls")
        page.get("home")
        if whole:
            api_times(page)
            call_times(plain, paged)
        return core_share(plain, paged, seconds)


def main(tools: int = 2000, seconds: int = 10, runs: int = 7) -> None:
    shares = [measured(tools, seconds, whole=not run) for run in range(runs)]
    print(f"median of {runs} runs: {statistics.median(shares):.2f} % of a core")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
