"""Answers delivered to the wrong caller: many hosts with the same ids, many servers, everything interleaved."""

from __future__ import annotations

import asyncio
import time

from tests.kit.config import quick_entry
from tests.kit.results import text
from tests.soak.bench import workbench
from tests.soak.figures import Figure
from tests.soak.hosts import BusyHost

HOSTS = 8
SERVERS = 8
CONNECTIONS = 8  # of each host


async def _calls(port: int, count: int) -> tuple[int, int]:
    """How many answers came, and how many of them were somebody else's."""
    hosts = [await BusyHost(port, modern=n % 2 == 1).open(CONNECTIONS) for n in range(HOSTS)]
    each = count // (HOSTS * CONNECTIONS)
    answered = wrong = 0

    async def one(number: int, wire: int) -> None:
        nonlocal answered, wrong
        host = hosts[number]
        for turn in range(each):
            server = f"s{(turn + wire) % SERVERS}"
            nonce = f"{number}.{wire}.{turn}"
            answer = await host.use(server, "echo", {"nonce": nonce}, wire)
            answered += 1
            wrong += text(answer) != f"{server} {nonce}"

    async with asyncio.TaskGroup() as group:
        for number in range(HOSTS):
            for wire in range(CONNECTIONS):
                group.create_task(one(number, wire))
    for host in hosts:
        await host.close()
    return answered, wrong


def measure(count: int = 1_000_000) -> Figure:
    with workbench({f"s{n}": quick_entry(f"s{n}") for n in range(SERVERS)}) as bench:
        began = time.monotonic()
        answered, wrong = asyncio.run(_calls(bench.port, count))
        seconds = time.monotonic() - began
    return Figure(
        f"answers to the wrong caller, {HOSTS} hosts and {SERVERS} servers",
        "0",
        f"{wrong} of {answered:,} ({answered / seconds:,.0f} calls/s, {HOSTS // 2} hosts of each era)",
        wrong == 0 and answered >= count * 0.99,
    )
