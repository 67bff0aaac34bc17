"""The same over HTTP: misbehaving servers in a loop of their own, and hosts of a real open port."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

from tests.faults.scene import OTHER, PAUSE, Others
from tests.kit.clock import PATIENCE
from tests.kit.config import entry, write_config
from tests.kit.http_host import Answer, Peer, Port
from tests.kit.results import Message

# Loaded by Python itself before anything of ours. A process with an open port is closed to its own
# user, so it counts its descriptors itself: whoever opens the FIFO reads how many there are.
COUNTER = """
import os, threading
def count():
    while True:
        try:
            with open(os.environ["COUNTER"], "w") as asked:
                asked.write(str(len(os.listdir("/proc/self/fd"))) + "\\n")
        except BrokenPipeError:
            pass
threading.Thread(target=count, daemon=True).start()
"""


def counting(folder: Path) -> dict[str, str]:
    """An environment in which a Python process tells its number of descriptors; servers do not."""
    (folder / "counter").mkdir()
    (folder / "counter" / "sitecustomize.py").write_text(COUNTER)
    os.mkfifo(folder / "counter" / "fifo")
    path = f"{folder / 'counter'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "PYTHONPATH": path, "COUNTER": str(folder / "counter" / "fifo")}


class Served:
    """A running `serve --http`, its process and its port."""

    def __init__(self, process: subprocess.Popen[bytes], port: Door, counter: str) -> None:
        self.process = process
        self.port = port
        self.complaints = bytearray()
        self._counter = Path(counter)

    def descriptors(self) -> int:
        number = ""
        while not number:  # it may just have been told to nobody: the last who asked had gone
            with self._counter.open() as counted:
                number = counted.readline()
        return int(number)

    @property
    def pid(self) -> int:
        return self.process.pid


@asynccontextmanager
async def served(
    folder: Path,
    *boxes: dict[str, Any],
    lag: float = PATIENCE,
    limit: float = 2.5 * PATIENCE,
    options: tuple[str, ...] = (),
    **more: Any,
) -> AsyncGenerator[Served]:
    """The real command on a port, with a toolbox of each of these servers, and a healthy one beside.

    The toolboxes are `box0`, `box1` and so on; a host of its own calls the healthy server in `dev`.
    All of it takes `limit` seconds at most.
    """
    whole = {f"box{n}": {"mcpServers": servers} for n, servers in enumerate(boxes)}
    whole["dev"] = {"mcpServers": {OTHER: entry()}}
    file = write_config(folder, {"toolboxes": whole, **more})
    argv = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(file), "--http", "0"]
    env = counting(folder)
    process = subprocess.Popen(  # noqa: ASYNC220 - starting it takes no time
        [*argv, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env
    )
    assert process.stderr is not None
    try:
        port = await asyncio.to_thread(told_port, process.stderr)
        opened = Served(process, Door(port), env["COUNTER"])
        listening = asyncio.ensure_future(asyncio.to_thread(process.stderr.read))
        try:
            async with asyncio.timeout(limit), others(opened.port, lag):
                yield opened
        finally:
            opened.port.leave()
            process.terminate()
            status = await asyncio.to_thread(process.wait, PATIENCE)
            opened.complaints += await listening
        assert status == 0
        assert b"Traceback" not in opened.complaints, opened.complaints.decode()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def told_port(stderr: IO[bytes]) -> int:
    line, _ = stderr.readline(), stderr.readline()  # the second is a remark
    found = re.search(rb"http://127\.0\.0\.1:(\d+)/mcp", line)
    assert found, line
    return int(found[1])


class Door(Port):
    """A port that another process has opened. Who asks one thing leaves afterwards."""

    def __init__(self, number: int) -> None:
        super().__init__(cast("Any", None), cast("Any", SimpleNamespace(port=number)))

    def leave(self) -> None:
        """Every connection that is still open is dropped."""
        while self.peers:
            self.peers.pop().close()

    async def ask(
        self, body: bytes = b"", headers: dict[str, Any] | None = None, **more: str
    ) -> Answer:
        peer = await self.connect()
        self.peers.remove(peer)
        try:
            peer.send(self.request(body, headers, **more))
            return await peer.answer()
        finally:
            peer.close()


@asynccontextmanager
async def others(port: Port, lag: float) -> AsyncGenerator[Others]:
    """Calls to the healthy server all the time, by a host of its own on one connection."""
    watch = Others()
    peer = await port.connect()
    port.peers.remove(peer)  # it leaves when we do
    leaving = asyncio.Event()
    calling = asyncio.ensure_future(_call_other(port, peer, watch, leaving))
    try:
        yield watch
        seen = watch.calls
        while watch.calls < seen + 2 and not calling.done():  # noqa: ASYNC110 - bounded there
            await asyncio.sleep(PAUSE)
    finally:
        leaving.set()
        await calling
        peer.close()
    watch.judge(lag)


async def _call_other(port: Port, peer: Peer, watch: Others, leaving: asyncio.Event) -> None:
    number = 0
    while not leaving.is_set():
        number += 1
        since = time.monotonic()
        params = box_call(OTHER, "echo", {"n": number}, box="dev")
        peer.send(port.request(*port.modern("tools/call", params)))
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await peer.answer()
        except TimeoutError:
            watch.hung += 1
            return
        fine = answer.status == 200 and answer.json_text["arguments"] == {"n": number}
        watch.note(time.monotonic() - since, fine=fine, told=answer)
        since = time.monotonic()
        await asyncio.sleep(PAUSE)
        watch.woken(since)


def box_call(
    server: str, tool: str, arguments: Message | None = None, box: str = "box0"
) -> Message:
    """Parameters of a call by `use_tool`."""
    named = {"toolbox": box, "server": server, "tool": tool}
    return {"name": "use_tool", "arguments": {"tool": named, "arguments": arguments or {}}}
