"""How soon a server hears that its call was taken back."""

from __future__ import annotations

import asyncio
import time

from tests.kit.config import quick_entry
from tests.kit.results import json_text
from tests.soak.bench import pipe_workbench, workbench
from tests.soak.figures import Figure
from tests.soak.hosts import BusyHost


def _on_pipes(count: int) -> list[float]:
    with pipe_workbench({"s": quick_entry("s")}) as host:
        host.use("s", "echo", {"nonce": 0})
        sent: list[float] = []
        for _ in range(count):
            id = host.begin_use("s", "hold", {})
            host.use("s", "echo", {"nonce": 0})
            sent.append(time.monotonic())
            host.notify("notifications/cancelled", {"requestId": id})
        heard: dict[str, float] = {}
        while len(heard) < count:
            heard = json_text(host.use("s", "seen", {}))["cancelled"]
    return [then - now for now, then in zip(sent, heard.values(), strict=True)]


async def _on_a_port(port: int, count: int) -> list[float]:
    """A modern host takes a call back by closing its connection."""
    steady = await BusyHost(port, modern=True).open()
    await steady.use("s", "echo", {"nonce": 0})
    sent: list[float] = []
    for _ in range(count):
        host = await BusyHost(port, modern=True).open()
        waiting = asyncio.ensure_future(host.use("s", "hold", {}))
        await asyncio.sleep(0)
        await steady.use("s", "echo", {"nonce": 0})
        await steady.use("s", "echo", {"nonce": 0})  # by now the call is under way
        sent.append(time.monotonic())
        await host.close()
        await asyncio.gather(waiting, return_exceptions=True)
    heard: dict[str, float] = {}
    while len(heard) < count:
        heard = json_text(await steady.use("s", "seen", {}))["cancelled"]
    await steady.close()
    return [then - now for now, then in zip(sent, heard.values(), strict=True)]


def measure(count: int = 100) -> Figure:
    pipes = _on_pipes(count)
    with workbench({"s": quick_entry("s")}) as bench:
        port = asyncio.run(_on_a_port(bench.port, count))
    worst = max(*pipes, *port)
    return Figure(
        f"cancel to the server, {count} on pipes and {count} by closed connections",
        "within 100 ms",
        f"worst {max(pipes) * 1000:.1f} ms on pipes, {max(port) * 1000:.1f} ms on a port",
        worst < 0.1,
    )
