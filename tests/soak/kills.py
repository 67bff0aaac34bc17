"""`kill -9` of one server amid many calls: only its own calls fail, and it is back at once."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.kit.clock import until
from tests.kit.config import quick_entry
from tests.kit.processes import pids_in
from tests.kit.results import error_code, text
from tests.soak.bench import workbench
from tests.soak.figures import Figure
from tests.soak.hosts import BusyHost

SERVERS = 5
CONNECTIONS = 50
VICTIM = "s2"


class _Run:
    def __init__(self, port: int, pids: Path, count: int) -> None:
        self._port, self._pids, self._count = port, pids, count
        self.errors: Counter[tuple[str, str]] = Counter()
        self.unnamed = 0
        self.back = 0.0  # seconds from its being needed to its answer

    async def calls(self) -> None:
        host = await BusyHost(self._port).open(CONNECTIONS + 1)
        for n in range(SERVERS):
            await host.use(f"s{n}", "echo", {"nonce": "first"})
        turns = iter(range(self._count))
        done = 0

        async def caller(wire: int) -> None:
            nonlocal done
            for turn in turns:
                server = f"s{turn % SERVERS}"
                answer = await host.use(server, "echo", {"nonce": turn}, wire)
                if error_code(answer):
                    self.errors[server, error_code(answer)] += 1
                    self.unnamed += f"dev/{server}/echo" not in text(answer)
                done += 1

        async def killer() -> None:
            await until(lambda: done >= self._count // 2)
            os.kill(pids_in(self._pids)[0], signal.SIGKILL)
            await until(lambda: len(pids_in(self._pids)) > 1 or done >= self._count)
            began = time.monotonic()
            answer = await host.use(VICTIM, "echo", {"nonce": "back"}, CONNECTIONS)
            self.back = time.monotonic() - began
            assert text(answer) == f"{VICTIM} back", answer

        async with asyncio.TaskGroup() as group:
            group.create_task(killer())
            for wire in range(CONNECTIONS):
                group.create_task(caller(wire))
        await host.close()


def measure(count: int = 1_000) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        pids = Path(folder) / "pids"
        servers = {f"s{n}": quick_entry(f"s{n}", "slow=0.002") for n in range(SERVERS)}
        servers[VICTIM] = quick_entry(VICTIM, "slow=0.002", f"pids={pids}")
        with workbench(servers) as bench:
            run = _Run(bench.port, pids, count)
            asyncio.run(run.calls())
    lost = sum(run.errors.values())
    others = sum(number for (server, _), number in run.errors.items() if server != VICTIM)
    codes = {found for _, found in run.errors}
    return Figure(
        f"kill -9 one of {SERVERS} servers amid {count:,} calls",
        "only its calls in flight fail, each named; it serves again within 1 s of being needed",
        f"{lost} calls of it lost ({', '.join(sorted(codes)) or 'none'}), {run.unnamed} unnamed, "
        f"{others} errors elsewhere; back in {run.back * 1000:.0f} ms",
        others == 0
        and run.unnamed == 0
        and codes <= {"server_exited"}
        and lost <= CONNECTIONS
        and run.back < 1.0,
    )
