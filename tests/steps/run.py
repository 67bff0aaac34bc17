"""The longest step of the event loop for a message of the largest size at every place where one can be.

    python -m tests.steps.run [hosts] [stdin] [modern] [servers] [http] [page] [--size MiB] [--only WORDS]
                              [--filling NAME] [--minutes M]

Says every few seconds how far it is, prints the longest steps, and ends with 1 if one took longer than
200 ms; messages of at most 1 MiB have 100 ms. What is left after M minutes is counted as not measured.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mcp_workbench.core.spec import (
    HttpEndpoint,
    HttpSettings,
    ServerAddress,
    ServerSpec,
    StdioCommand,
)
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.http_app import port_of
from mcp_workbench.server.http.front import HttpFront
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport.tasks import TaskScope, task_scope
from tests.kit.config import snapshot
from tests.kit.memory_host import MemoryHost
from tests.steps.fillings import FILLINGS, value
from tests.steps.host_messages import HOST, MODERN_HOST, TOLD
from tests.steps.measure import Longest, measured
from tests.steps.server_messages import OPEN, SERVER

if TYPE_CHECKING:
    from mcp_workbench.ui.page_routes import PageRoutes

LARGEST = 32  # MiB, as `limits.messageBytes` is by default
ROOM = 4096  # bytes for what is around a value
PATIENCE = 60.0  # seconds for one message
CHUNK = 64 << 10  # bytes that a pipe gives at once
ALLOWED = 0.2  # seconds, for the largest message
ALLOWED_SMALL = 0.1  # for one of at most a MiB
SAYS = 10.0  # seconds between two lines that say how far it is
MINUTES = 30.0
RUNS = 3  # of a message that holds the loop for too long
EVENTS = 8  # lines of a stream of the page
PAGES = (
    "api/home",
    "api/tools?toolbox=dev",
    "api/search?words=some+tool",
    "api/numbers",
    "api/calls",
    "api/locks",
)
SHOWN = 25  # rows of the table
SERVER_PROGRAM = str(Path(__file__).with_name("large_server.py"))

Row = tuple[float, str, str, str, str]  # seconds, where, what, filling, the step


class Run:
    """What is measured, and what was found."""

    def __init__(self, chosen: Namespace) -> None:
        self.size = (chosen.size << 20) - ROOM
        self.only: str = chosen.only
        self.fillings: list[str] = chosen.filling or list(FILLINGS)
        self.allowed = ALLOWED if chosen.size > 1 else ALLOWED_SMALL
        self.since = time.monotonic()
        self.until = self.since + 60 * chosen.minutes
        self.left_out = 0  # not measured: the time was up
        self.rows: list[Row] = []
        self.longest = Longest()
        self._said = self.since

    def cases(self, place: str, names: Iterator[str] | Any) -> Iterator[tuple[str, str, bytes]]:
        """Each place with each filling."""
        cases = [
            (name, filling)
            for filling in self.fillings
            for name in names
            if self.only in f"{place}: {name}: {filling}"
        ]
        made, data = "", b""
        for done, (name, filling) in enumerate(cases):
            self._say(f"{place}: {done} of {len(cases)}")
            if time.monotonic() > self.until:
                self.left_out += len(cases) - done
                return
            if filling != made:
                made, data = filling, value(filling, self.size)
            yield name, filling, data

    def _say(self, how_far: str) -> None:
        now = time.monotonic()
        if now - self._said > SAYS:
            self._said = now
            print(f"  {now - self.since:5.0f} s  {how_far}", flush=True)

    async def measure(
        self, place: str, name: str, filling: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Measure the longest step of this; what takes too long is tried again, and the best counts."""
        best = (float("inf"), "")
        for _ in range(RUNS):
            gc.collect()
            await asyncio.sleep(0)  # this step made the message, and is not measured
            self.longest.take()
            await work()
            best = min(best, self.longest.take())
            if best[0] <= self.allowed:
                break
        self.rows.append((best[0], place, name, filling, best[1]))
        if best[0] > self.allowed:
            print(f"{best[0] * 1000:7.0f} ms  {place}: {name}: {filling}", flush=True)


class Host:
    """A host over HTTP, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._session: dict[str, str] = {}

    def ask(self, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of the answer; of a stream, its first line."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        sent = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **self._session,
            **(headers or {}),
        }
        try:
            connection.request("POST", "/mcp", body, sent)
            answer = connection.getresponse()
            is_stream = answer.headers.get_content_type() == "text/event-stream"
            data = answer.readline() if is_stream and headers else _rest(answer)
            if session := answer.headers.get("mcp-session-id"):
                self._session["mcp-session-id"] = session
            return answer.status, data
        finally:
            connection.close()

    def open(self) -> None:
        about = {"name": "a", "version": "1"}
        can: dict[str, Any] = {"elicitation": {}, "sampling": {}}
        params = {"protocolVersion": "2025-06-18", "capabilities": can, "clientInfo": about}
        self.request("initialize", params)
        self._session["mcp-protocol-version"] = "2025-06-18"
        self.ask(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask(json.dumps(message).encode())[1]


def _rest(answer: http.client.HTTPResponse) -> bytes:
    """The body; of one that is cut off because we were too slow for a notification, what came."""
    try:
        return answer.read()
    except http.client.IncompleteRead as error:
        return error.partial


@asynccontextmanager
async def port(*specs: ServerSpec) -> AsyncGenerator[tuple[int, HttpFront]]:
    """A workbench with these servers, on a port."""
    async with (
        Gateway(snapshot(*specs)) as gateway,
        port_of(gateway, "127.0.0.1", 0, HttpSettings(metrics=True), ui=True) as (front, server),
    ):
        gc.collect()
        gc.freeze()
        yield server.port, front


def server_of(folder: Path) -> ServerSpec:
    command = StdioCommand(sys.executable, ("-E", "-S", SERVER_PROGRAM, str(folder)))
    return ServerSpec(ServerAddress("dev", "a"), command, era="legacy")


def written(folder: Path, method: str, data: bytes, *, events: bool = False) -> Path:
    """The folder, with what the server there answers."""
    (folder / method.replace("/", ".")).write_bytes(data)
    if events:
        (folder / "stream").touch()
    return folder


# Hosts


async def hosts(run: Run) -> None:
    """Messages of legacy hosts over HTTP."""
    everything = {**HOST, **TOLD}
    with tempfile.TemporaryDirectory() as folder:
        async with port(server_of(Path(folder))) as (number, _):
            host = Host(number)
            await asyncio.to_thread(host.open)
            for name, filling, data in run.cases("host", everything):
                body = everything[name](data)

                async def work(body: bytes = body) -> None:
                    await asyncio.to_thread(host.ask, body)

                await run.measure("host", name, filling, work)


async def modern(run: Run) -> None:
    """Messages of modern hosts over HTTP."""
    with tempfile.TemporaryDirectory() as folder:
        async with port(server_of(Path(folder))) as (number, _):
            host = Host(number)
            for name, filling, data in run.cases("modern host", MODERN_HOST):
                method, about, made = MODERN_HOST[name]
                headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
                headers |= {"mcp-name": about} if about else {}
                body = made(data)

                async def work(body: bytes = body, headers: dict[str, str] = headers) -> None:
                    await asyncio.to_thread(host.ask, body, headers)

                await run.measure("modern host", name, filling, work)


async def stdio(run: Run) -> None:
    """The same on stdin."""
    everything = {**HOST, **TOLD}
    with tempfile.TemporaryDirectory() as folder:
        async with Gateway(snapshot(server_of(Path(folder)))) as gateway:
            for name, filling, data in run.cases("stdin", everything):
                line = everything[name](data) + b"\n"
                is_answered = name in HOST and name not in ("an id", "a method")

                async def work(line: bytes = line, is_answered: bool = is_answered) -> None:
                    async with task_scope() as requests:
                        await on_stdin(gateway, requests, line, is_answered=is_answered)

                await run.measure("stdin", name, filling, work)


async def on_stdin(
    gateway: Gateway, requests: TaskScope, line: bytes, *, is_answered: bool
) -> None:
    """One line of a host, in parts as a pipe gives them, and its answer."""
    host = MemoryHost()
    session = HostSession(gateway.view, host, requests, ToolView(gateway.view, ()))
    session.era.revision = "2025-06-18"
    front = StdioFront(session, host, 2 * len(line))
    for start in range(0, len(line), CHUNK):
        front.receive(line[start : start + CHUNK])
        await asyncio.sleep(0)
    await front.all_read()
    if is_answered:
        async with asyncio.timeout(PATIENCE):
            await host.more.wait()
    session.close()


# Servers


async def asked(spec: ServerSpec, requests: list[Any]) -> None:
    """What a host asks of a workbench with this server."""
    async with port(spec) as (number, _):
        host = Host(number)
        await asyncio.to_thread(host.open)
        for method, params in (OPEN, *requests):  # what is not open is not listed
            await asyncio.to_thread(host.request, method, params)


async def servers(run: Run) -> None:
    """Messages of servers on stdio."""
    for name, filling, data in run.cases("server", SERVER):
        method, made, requests = SERVER[name]
        with tempfile.TemporaryDirectory() as folder:
            spec = server_of(written(Path(folder), method, made(data)))
            await run.measure("server", name, filling, partial(asked, spec, requests))


@contextmanager
def program(folder: Path) -> Generator[ServerSpec]:
    argv = [sys.executable, "-E", "-S", SERVER_PROGRAM, str(folder), "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        try:
            yield ServerSpec(ServerAddress("dev", "a"), HttpEndpoint(url), era="legacy")
        finally:
            process.terminate()


async def over_http(run: Run) -> None:
    """Messages of servers over HTTP: in one body, and as an event."""
    answers = [name for name in SERVER if SERVER[name][0] != "told"]
    for kind in ("body", "event"):
        for name, filling, data in run.cases(f"server, {kind}", answers):
            method, made, requests = SERVER[name]
            with tempfile.TemporaryDirectory() as folder:
                place = written(Path(folder), method, made(data), events=kind == "event")
                with program(place) as spec:
                    work = partial(asked, spec, requests)
                    await run.measure(f"server, {kind}", name, filling, work)


# The page and the metrics


class Browser:
    """A page in a browser, in a thread of its own."""

    def __init__(self, number: int, address: str) -> None:
        self._number = number
        _, headers = self._get(address, {})
        self._cookie, _, rest = headers["set-cookie"].partition(";")
        self._path = rest.partition("Path=")[2].partition(";")[0]

    def _get(self, path: str, headers: dict[str, str]) -> tuple[bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self._number, timeout=PATIENCE)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            is_stream = answer.headers.get_content_type() == "text/event-stream"
            data = (
                b"".join(answer.readline() for _ in range(EVENTS)) if is_stream else answer.read()
            )
            return data, answer.headers
        finally:
            connection.close()

    def look(self) -> None:
        """Everything that the page shows, and the metrics."""
        one = "toolbox=dev&server=a"
        follows = f"api/events?topics=home,server,calls&{one}"
        for path in (*PAGES, f"api/server?{one}", f"api/tool?{one}&tool=t", follows):
            self._get(f"{self._path}{path}", {"cookie": self._cookie})
        self._get("/metrics", {})

    def call(self) -> None:
        """Try the tool."""
        connection = http.client.HTTPConnection("127.0.0.1", self._number, timeout=PATIENCE)
        headers = {
            "cookie": self._cookie,
            "origin": f"http://127.0.0.1:{self._number}",
            "x-workbench-page": "1",
            "content-type": "application/json",
        }
        body = json.dumps({"toolbox": "dev", "server": "a", "tool": "t"})
        try:
            connection.request("POST", f"{self._path}api/call", body, headers)
            connection.getresponse().read()
        finally:
            connection.close()


async def looked_at(spec: ServerSpec) -> None:
    """What a person at the page does with this server."""
    async with port(spec) as (number, front):
        host = Host(number)
        await asyncio.to_thread(host.open)
        await asyncio.to_thread(host.request, *OPEN)
        address = cast("PageRoutes", front.page).address
        browser = await asyncio.to_thread(Browser, number, address)
        await asyncio.to_thread(browser.call)
        await asyncio.to_thread(browser.look)


async def page(run: Run) -> None:
    """The page and the metrics, beside a server with such messages."""
    methods = ("initialize", "tools/list", "tools/call")
    for name, filling, data in run.cases("page", [n for n in SERVER if SERVER[n][0] in methods]):
        method, made, _ = SERVER[name]
        with tempfile.TemporaryDirectory() as folder:
            spec = server_of(written(Path(folder), method, made(data)))
            await run.measure("page", name, filling, partial(looked_at, spec))


PARTS: dict[str, Callable[[Run], Coroutine[Any, Any, None]]] = {
    "hosts": hosts,
    "stdin": stdio,
    "modern": modern,
    "servers": servers,
    "http": over_http,
    "page": page,
}


def report(run: Run) -> int:
    rows = sorted(run.rows, reverse=True)
    over = [row for row in rows if row[0] > run.allowed]
    seconds, size = time.monotonic() - run.since, (run.size + ROOM) >> 20
    print(f"\n{len(rows)} messages of {size} MiB in {seconds:.0f} s; the longest steps:")
    for taken, place, name, filling, what in rows[:SHOWN]:
        print(f"{taken * 1000:7.0f} ms  {place}: {name}: {filling}   {what[:100]}")
    print(f"{len(over)} longer than {run.allowed * 1000:.0f} ms")
    if run.left_out:
        print(f"not measured, because the time was up: {run.left_out}")
    return 1 if over or run.left_out else 0


def main(words: list[str]) -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--size", type=int, default=LARGEST, help="MiB")
    parser.add_argument("--only", default="", help="a part of what is printed")
    parser.add_argument("--filling", action="append", choices=list(FILLINGS))
    parser.add_argument("--minutes", type=float, default=MINUTES)
    chosen = parser.parse_args(words)
    run = Run(chosen)
    with measured() as run.longest:
        for name in chosen.parts or PARTS:
            asyncio.run(PARTS[name](run))
    return report(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
