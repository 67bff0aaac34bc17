"""The same over HTTP: misbehaving servers in a loop of their own, and hosts of a real open port."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.faults.scene import OTHER, PAUSE, Others
from tests.kit.clock import PATIENCE
from tests.kit.command import HttpCommand, serving
from tests.kit.config import entry, write_config
from tests.kit.http_host import Peer, Port
from tests.kit.results import Message, use_tool

# Loaded by Python itself before anything of ours. A process with an open port is closed to its own
# user, so it counts its descriptors itself: whoever opens the FIFO reads how many there are. A thread
# does not survive a fork: only a command of its own (`real_commands`) can be counted.
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
    return {"PYTHONPATH": path, "COUNTER": str(folder / "counter" / "fifo")}


class Served:
    """A running `serve --http` and its port."""

    def __init__(self, command: HttpCommand, counter: Path | None) -> None:
        self.command = command
        self.process = command.process
        self.pid = command.process.pid
        self.port = Port(command.port)
        self._counter = counter

    def descriptors(self) -> int:
        """How many it has open, where it was started with `counted`."""
        assert self._counter is not None
        number = ""
        while not number:  # it may just have been told to nobody: the last who asked had gone
            with self._counter.open() as counted:
                number = counted.readline()
        return int(number)


@asynccontextmanager
async def served(
    folder: Path,
    *boxes: dict[str, Any],
    lag: float = PATIENCE,
    limit: float = 2.5 * PATIENCE,
    options: tuple[str, ...] = (),
    counted: bool = False,
    **more: Any,
) -> AsyncGenerator[Served]:
    """The real command on a port, with a toolbox of each of these servers, and a healthy one beside.

    The toolboxes are `box0`, `box1` and so on; a host of its own calls the healthy server in `dev`.
    All of it takes `limit` seconds at most.
    """
    whole = {f"box{n}": {"mcpServers": servers} for n, servers in enumerate(boxes)}
    whole["dev"] = {"mcpServers": {OTHER: entry()}}
    file = write_config(folder, {"toolboxes": whole, **more})
    # Not for all: a command with a PYTHONPATH of its own cannot be a fork of one that others use.
    env = counting(folder) if counted else {}
    with serving(file, "0", env, *options) as command:
        opened = Served(command, Path(env["COUNTER"]) if counted else None)
        draining = command.drain()
        try:
            async with asyncio.timeout(limit), others(opened.port, lag):
                yield opened
        finally:
            opened.port.close()
            command.process.terminate()
            status = await asyncio.to_thread(command.process.wait, PATIENCE)
            await asyncio.to_thread(draining.join, PATIENCE)
        assert status == 0
        assert "Traceback" not in command.complaints, command.complaints


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
    """Parameters of a call by `use_tool`, in a toolbox of the faulty servers."""
    return use_tool(server, tool, arguments or {}, toolbox=box)
