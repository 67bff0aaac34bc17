"""Reloads under load: the file is rewritten again and again while hosts call, and no call may be lost.

python -m tests.soak.reloads [RELOADS]
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import eventually
from tests.kit.command import serving
from tests.kit.config import entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import pids_in
from tests.kit.results import Message, json_text, use_tool
from tests.soak.figures import Figure

RELOADS = 50
RATE = 50  # calls a second
SLOW_EVERY = 10  # one call of so many is under way for a while
SLOW = 2.5  # seconds; longer than a child that is told to leave has
PATIENCE = 60.0  # for the last answers

SERVERS = ("still", "quiet", "moving")  # of which only the last one's entry ever changes


class Figures(NamedTuple):
    """What a run came to."""

    reloads: int
    bad: int
    calls: int
    lost: list[str]
    moves: int  # reloads that change how `moving` is started
    starts: dict[str, int]

    @property
    def needless(self) -> int:
        """Starts beyond the first one of each server and one for each change of it."""
        return sum(self.starts.values()) - len(SERVERS) - self.moves

    def __str__(self) -> str:
        return (
            f"{self.reloads} reloads, {self.bad} of them of bad files; {self.calls} calls, "
            f"{len(self.lost)} lost; {self.needless} needless reconnects (starts {self.starts})"
        )


# The file and its changes


class File:
    """A configuration that is written in every way that editors have."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "workbench-config.json"
        self._pids = {name: folder / f"{name}.pids" for name in SERVERS}
        self._folder = folder
        self.generation = 0
        self._description = "the first"
        self._filters = ["*"]
        self.path.write_bytes(self._text())

    def starts(self) -> dict[str, int]:
        return {name: len(pids_in(file)) for name, file in self._pids.items()}

    def _text(self) -> bytes:
        servers = {name: entry(env={"PIDFILE": str(self._pids[name])}) for name in SERVERS}
        servers["moving"]["env"]["GENERATION"] = str(self.generation)
        servers["quiet"]["toolFilters"] = self._filters
        dev = {"description": self._description, "mcpServers": servers}
        return json.dumps({"toolboxes": {"dev": dev}}, indent=2).encode()

    def move(self) -> None:
        self.generation += 1
        self._write(self._text())

    def describe(self, text: str) -> None:
        self._description = text
        self._write(self._text())

    def filter(self, *patterns: str) -> None:
        self._filters = list(patterns)
        self._write(self._text())

    def spoil(self, number: int) -> None:
        text = self._text()
        spoilt = [
            text[: len(text) // 2],
            b"",
            b'{"toolboxes": 7}',
            text.replace(b'"args"', b"args"),
        ]
        self._write(spoilt[number % len(spoilt)])

    def _write(self, data: bytes) -> None:
        how = (self._in_place, self._renamed, self._linked)[len(data) % 3]
        how(data)

    def _in_place(self, data: bytes) -> None:
        self.path.write_bytes(data)

    def _renamed(self, data: bytes) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_bytes(data)
        beside.replace(self.path)

    def _linked(self, data: bytes) -> None:
        target = self._folder / f"version-{time.monotonic_ns()}.json"
        target.write_bytes(data)
        link = self.path.with_suffix(".link")
        link.symlink_to(target)
        link.replace(self.path)


# Hosts


class Caller(Protocol):
    """Something that calls and counts."""

    calls: int
    lost: list[str]

    def begin(self, server: str, tool: str, arguments: Message) -> None: ...
    def ask(self, tool: str, arguments: Message) -> Message: ...
    def settle(self) -> None: ...


def verdict(answer: Message) -> str:
    """Why this is no good answer; empty if it is."""
    result = answer.get("result", {"isError": True, "error": answer.get("error")})
    return json.dumps(result) if result.get("isError") else ""


class OnStdio:
    """One host on a pipe, all of whose answers are read by a thread."""

    def __init__(self, host: PipeHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._answers: dict[int, Message] = {}
        self._number = 1000
        self._asked: dict[int, float] = {}
        self.calls = 0
        self.lost: list[str] = []
        self._over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over:
            try:
                message = self._host.receive()
            except Exception:  # noqa: BLE001 - nothing came for a while
                continue
            if message is None:
                return
            if "method" not in message:
                self._answers[message["id"]] = message

    def _send(self, params: Message) -> int:
        with self._lock:
            self._number += 1
            self._host.ask("tools/call", params, self._number)
            return self._number

    def begin(self, server: str, tool: str, arguments: Message) -> None:
        self.calls += 1
        self._asked[self._send(use_tool(server, tool, arguments))] = time.monotonic()

    def ask(self, tool: str, arguments: Message) -> Message:
        number = self._send({"name": tool, "arguments": arguments})
        eventually(lambda: number in self._answers, f"an answer of {tool}")
        return self._answers.pop(number)["result"]

    def settle(self) -> None:
        until = time.monotonic() + PATIENCE
        while self._asked.keys() - self._answers.keys() and time.monotonic() < until:
            time.sleep(0.01)
        for number in self._asked:
            answer = self._answers.get(number, {"error": "no answer"})
            if why := verdict(answer):
                self.lost.append(why)
        self._over = True


class OnHttp:
    """Modern hosts on a port: each call is a request on one of several connections."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/mcp"
        self._pool = ThreadPoolExecutor(32)
        self._local = threading.local()
        self.calls = 0
        self.lost: list[str] = []

    def _post(self, params: Message) -> Message:
        host = HttpHost(self._url, modern=True, timeout=PATIENCE)
        try:
            return host.request("tools/call", params)
        except OSError as error:
            return {"error": repr(error)}
        finally:
            host.close()

    def _call(self, params: Message) -> None:
        if why := verdict(self._post(params)):
            self.lost.append(why)

    def begin(self, server: str, tool: str, arguments: Message) -> None:
        self.calls += 1
        self._pool.submit(self._call, use_tool(server, tool, arguments))

    def ask(self, tool: str, arguments: Message) -> Message:
        return self._post({"name": tool, "arguments": arguments})["result"]

    def settle(self) -> None:
        self._pool.shutdown(wait=True)


# The run


def run(caller: Caller, file: File, reloads: int, report: Callable[[str], None]) -> Figures:
    """So many reloads, a fifth of them bad, while calls come at their rate."""
    over = threading.Event()
    load = threading.Thread(target=_load, args=(caller, over), daemon=True)
    opened(caller)
    load.start()
    bad = moves = 0
    try:
        for number in range(1, reloads + 1):
            if number % 5 == 0:
                bad += 1
                file.spoil(number // 5)
                eventually(lambda: "warnings" in opened(caller), "a bad file is told")
            else:
                moves += number % 5 in (1, 3)
                _change(caller, file, number)
            report(f"reload {number}: {caller.calls} calls, {len(caller.lost)} lost")
    finally:
        over.set()
        load.join()
    caller.settle()
    return Figures(reloads, bad, caller.calls, caller.lost, moves, file.starts())


def _change(caller: Caller, file: File, number: int) -> None:
    """Another good file, and the sign that it was taken."""
    if number % 5 in (1, 3):
        file.move()
        eventually(lambda: _generation(caller) == file.generation, "it moves")
    elif number % 5 == 2:
        text = f"the {number}th"
        file.describe(text)
        eventually(lambda: opened(caller)["description"] == text, "its text")
    else:
        hidden = "die" if number % 10 == 4 else "half"
        file.filter("*", f"!{hidden}")
        eventually(lambda: hidden not in _quiet(caller), "its filter")


def _load(caller: Caller, over: threading.Event) -> None:
    due = time.monotonic()
    while not over.is_set():
        server = SERVERS[caller.calls % len(SERVERS)]
        if caller.calls % SLOW_EVERY == 1:
            caller.begin(server, "slow", {"seconds": SLOW})
        else:
            caller.begin(server, "echo", {"text": "x"})
        due += 1 / RATE
        over.wait(max(0.0, due - time.monotonic()))


def opened(caller: Caller) -> Message:
    result = caller.ask("open_toolbox", {"toolbox_name": "dev"})
    assert not result.get("isError"), result
    return json_text(result)


def _quiet(caller: Caller) -> list[str]:
    return [t["name"] for t in opened(caller)["tools"] if t["source_server"] == "quiet"]


def _generation(caller: Caller) -> int:
    params = use_tool("moving", "env", {})
    result = caller.ask(params["name"], params["arguments"])
    return int(json_text(result)["env"]["GENERATION"])


def over_stdio(folder: Path, reloads: int, report: Callable[[str], None]) -> Figures:
    file = File(folder)
    with PipeHost(file.path) as host:
        host.initialize()
        return run(OnStdio(host), file, reloads, report)


def over_http(folder: Path, reloads: int, report: Callable[[str], None]) -> Figures:
    file = File(folder)
    with serving(file.path) as command:
        draining = command.drain()
        try:
            return run(OnHttp(command.port), file, reloads, report)
        finally:
            command.process.terminate()
            command.process.wait(PATIENCE)
            draining.join(PATIENCE)


def measure(reloads: int = RELOADS) -> list[Figure]:
    """The same on pipes and on a port, as one of the long runs."""
    found: list[Figure] = []
    for name, runs in {"pipes": over_stdio, "a port": over_http}.items():
        with tempfile.TemporaryDirectory() as folder:
            figures = runs(Path(folder), reloads, lambda line: None)
        found.append(
            Figure(
                f"{reloads} reloads under load, on {name}",
                "0 lost calls, 0 needless reconnects",
                "; ".join([str(figures), *(why[:300] for why in figures.lost[:3])]),
                not figures.lost and not figures.needless,
            )
        )
    return found


def main() -> int:
    reloads = int(sys.argv[1]) if len(sys.argv) > 1 else RELOADS
    lines = {"stdio": over_stdio, "http": over_http}
    good = True
    for name, runs in lines.items():
        with tempfile.TemporaryDirectory() as folder:
            figures = runs(Path(folder), reloads, lambda line: print(line, file=sys.stderr))
        print(f"{name}: {figures}")
        for why in figures.lost[:5]:
            print(f"  lost: {why[:300]}")
        good = good and not figures.lost and not figures.needless
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
