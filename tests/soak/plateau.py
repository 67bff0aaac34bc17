"""Many calls, many sessions, many restarts: memory finds its level, and nothing is left lying about."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path

from tests.kit.clock import until
from tests.kit.config import quick_entry
from tests.kit.processes import alive, pids_in
from tests.kit.results import error_code, text
from tests.soak.bench import Bench, Vitals, workbench
from tests.soak.figures import Figure
from tests.soak.hosts import BusyHost

SERVERS = 10
ROUNDS = 10
AT_ONCE = 8  # sessions


class _Run:
    """Rounds of sessions; after each, how the workbench does."""

    def __init__(self, bench: Bench, pids: Path, calls: int, restarts: int, sessions: int) -> None:
        self._bench, self._pids = bench, pids
        self._sessions = sessions // ROUNDS
        self._calls = calls // sessions
        self._kills = restarts // ROUNDS
        self.looks: list[Vitals] = []
        self.lost = self.odd = self.done = self.killed = 0

    async def all(self) -> None:
        for _ in range(ROUNDS):
            await self._round()
            self.looks.append(await self._rested())

    async def _round(self) -> None:
        left = iter(range(self._sessions))
        over = asyncio.Event()

        async def visitor() -> None:
            for number in left:
                await self._session(number)

        killing = asyncio.ensure_future(self._kill(over))
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(visitor())
        over.set()
        await killing

    async def _session(self, number: int) -> None:
        host = await BusyHost(self._bench.port, modern=number % 2 == 1).open()
        for turn in range(self._calls):
            server = f"s{(number + turn) % SERVERS}"
            answer = await host.use(server, "echo", {"nonce": turn})
            self.done += 1
            if error_code(answer) == "server_exited":
                self.lost += 1
            else:
                self.odd += text(answer) != f"{server} {turn}"
        await host.close()

    async def _kill(self, over: asyncio.Event) -> None:
        """Spread over the round, each time another server that has done its work."""
        for number in range(self._kills):
            goal = self.done + max(self._sessions * self._calls // (self._kills + 1), 1)
            await until(lambda goal=goal: self.done >= goal or over.is_set())
            file = self._pids / f"s{number % SERVERS}"
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids_in(file)[-1], signal.SIGKILL)
                self.killed += 1

    async def _rested(self) -> Vitals:
        """With every server up again and every session gone."""
        host = await BusyHost(self._bench.port).open()
        for number in range(SERVERS):
            await host.use(f"s{number}", "echo", {"nonce": 0})
        await host.close()
        await asyncio.sleep(0.3)  # what has been closed is also forgotten by the kernel
        return self._bench.vitals()


def measure(calls: int = 100_000, restarts: int = 500, sessions: int = 5_000) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        pids = Path(folder)
        servers = {f"s{n}": quick_entry(f"s{n}", f"pids={pids / f's{n}'}") for n in range(SERVERS)}
        with workbench(servers) as bench:
            run = _Run(bench, pids, calls, restarts, sessions)
            asyncio.run(run.all())
        left = [pid for file in pids.iterdir() for pid in pids_in(file) if alive(pid)]
    half = ROUNDS // 2
    level = max(look.rss for look in run.looks[:half])
    growth = run.looks[-1].rss / level - 1
    first, last = run.looks[0], run.looks[-1]
    return Figure(
        f"{run.done:,} calls, {run.killed} server restarts, {sessions:,} host sessions",
        "memory within 5 % of its plateau; no descriptor, task or process left",
        f"{growth:+.1%} after the first half ({last.rss:.1f} MiB); descriptors "
        f"{first.descriptors} -> {last.descriptors}, tasks {len(first.tasks)} -> {len(last.tasks)}, "
        f"children {len(first.children)} -> {len(last.children)}, {len(left)} left at the end; "
        f"{run.lost} calls lost with their server, {run.odd} odd answers",
        growth <= 0.05
        and last.descriptors <= first.descriptors
        and len(last.tasks) <= len(first.tasks)
        and len(last.children) <= len(first.children)
        and not left
        and run.odd == 0,
    )
