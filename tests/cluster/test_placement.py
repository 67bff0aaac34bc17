"""One process of a server for three real replicas on a real Valkey: called, killed, stopped, handed over."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.raw_hosts import RawHost
from tests.cluster.scenes import LIMIT, Cluster, ReplicaProcess, cluster
from tests.kit.config import program_entry
from tests.kit.servers import ASKER

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

COUNTER = str(Path(__file__).with_name("counter_server.py"))
END = 30.0  # seconds

Scene = Callable[["CounterScene"], Awaitable[None]]


class CounterScene:
    """Three replicas, a host at each, and the counter behind all of them."""

    def __init__(self, running: Cluster, folder: Path, hosts: list[RawHost]) -> None:
        self.running = running
        self.folder = folder
        self.hosts = hosts

    def events(self) -> list[str]:
        file = self.folder / "events"
        return file.read_text().splitlines() if file.exists() else []

    def noted(self, word: str) -> int:
        return sum(line.split()[0] == word for line in self.events())

    def started(self) -> list[int]:
        return [int(line.split()[1]) for line in self.events() if line.startswith("start ")]

    def alive(self) -> list[int]:
        return [pid for pid in self.started() if is_alive(pid)]

    def holder(self) -> ReplicaProcess:
        """The replica that runs the only process."""
        [pid] = self.alive()
        family = ancestors(pid)
        [holder] = [r for r in self.running.replicas if r.process and r.process.pid in family]
        return holder

    def host_of(self, replica: ReplicaProcess) -> RawHost:
        return next(host for host in self.hosts if host.port == replica.port)

    def others(self) -> list[RawHost]:
        holder = self.holder()
        return [host for host in self.hosts if host.port != holder.port]

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + END
        while not condition():
            assert time.monotonic() < end, self.events()
            await asyncio.sleep(0.05)


async def count(host: RawHost) -> dict[str, Any] | None:
    """The answer of the counter; None if there is none, and why is counted."""
    text = await host.call("counter", "count", {})
    return None if text is None else json.loads(text)


async def counted(hosts: list[RawHost], each: int) -> list[dict[str, Any]]:
    """Answers to so many calls of each host, all hosts at once."""
    answers: list[dict[str, Any]] = []

    async def call(host: RawHost) -> None:
        for _ in range(each):
            answer = await count(host)
            if answer is not None:
                answers.append(answer)

    async with asyncio.TaskGroup() as tasks:
        for host in hosts:
            tasks.create_task(call(host))
    return answers


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        found.append(pid)
    return found


@asynccontextmanager
async def hosts_of(running: Cluster) -> AsyncGenerator[list[RawHost]]:
    hosts = [RawHost(r.port, f"h{number}", "alice") for number, r in enumerate(running.replicas)]
    for host in hosts:
        await host.open()
    try:
        yield hosts
    finally:
        for host in hosts:
            host.close()


def play(folder: Path, scene: Scene, **entry: Any) -> None:
    """Play a scene with the counter placed once."""
    state = folder / "state of the counter"
    state.mkdir()
    args = ["-E", "-S", COUNTER, str(state)]
    counter = {"command": sys.executable, "args": args, "placement": "one", **entry}
    asker = program_entry(ASKER, era="modern", placement="one")
    boxes = {"dev": {"mcpServers": {"counter": counter, "asker": asker}}}

    async def with_hosts(running: Cluster) -> None:
        async with hosts_of(running) as hosts:
            await scene(CounterScene(running, state, hosts))

    with cluster(folder, toolboxes=boxes) as running:
        asyncio.run(with_hosts(running))


def test_one_process_counts_for_all_replicas(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        answers = await counted(now.hosts, 100)

        assert sorted(answer["count"] for answer in answers) == list(range(1, 301))
        assert len({answer["pid"] for answer in answers}) == 1
        assert len(now.started()) == 1
        assert now.noted("initialize") == 1

    play(tmp_path, scene)


def test_progress_and_cancellations_find_their_call(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        await counted(now.hosts, 1)
        async with asyncio.TaskGroup() as tasks:
            for host in now.hosts:
                tasks.create_task(host.call("counter", "progress", {}, progressToken="p"))
        assert [host.notices for host in now.hosts] == [3, 3, 3]

        for times, host in enumerate(now.others(), 1):
            held = asyncio.create_task(host.call("counter", "hold", {}))
            await now.wait_for(lambda: now.noted("held") == times)  # noqa: B023
            host.close()  # and with that its call, which it cancels
            await held
            await now.wait_for(lambda: now.noted("cancelled") == times)  # noqa: B023
        assert len(now.started()) == 1

    play(tmp_path, scene)


def test_a_question_reaches_the_host_whose_call_it_belongs_to(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        async def ask(host: RawHost) -> None:
            for _ in range(5):
                await host.question()

        async with asyncio.TaskGroup() as tasks:
            for host in now.hosts:
                tasks.create_task(ask(host))
        assert [host.outcomes for host in now.hosts] == [{"ok": 5}] * 3, now.hosts[0].strange

    play(tmp_path, scene)


def test_a_killed_holder_is_followed_by_another_one(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        await counted(now.hosts, 5)
        [old] = now.alive()
        others, holder = now.others(), now.holder()
        held = [asyncio.create_task(host.call("counter", "hold", {})) for host in others]
        await now.wait_for(lambda: now.noted("held") == 2)

        killed = time.monotonic()
        holder.kill()

        assert [await task for task in held] == [None, None]
        assert [host.outcomes for host in others] == [{"lost": 1}, {"lost": 1}], others[0].strange
        answers = await counted(others, 50)
        print(f"\n100 calls after {time.monotonic() - killed:.1f} s", flush=True)
        assert sorted(answer["count"] for answer in answers) == list(range(1, 101))
        assert {answer["pid"] for answer in answers} == set(now.alive())
        assert old not in now.alive()
        assert len(now.started()) == 2

    play(tmp_path, scene)


def test_a_stopped_holder_never_answers_beside_its_successor(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        await counted(now.hosts, 5)
        [old] = now.alive()
        others, holder = now.others(), now.holder()
        its_host = now.host_of(holder)
        held = asyncio.create_task(its_host.call("counter", "hold", {}))
        await now.wait_for(lambda: now.noted("held") == 1)
        holder.signal(signal.SIGSTOP)
        try:
            lost = await counted(others, 1)
            answers = await counted(others, 20)
            (now.folder / "release").touch()  # the old process answers, but to nobody
        finally:
            holder.signal(signal.SIGCONT)
        assert lost == []  # they waited at the stopped one
        assert await held is None
        assert its_host.outcomes == {"lost": 1}, its_host.strange
        answers += await counted(now.hosts, 20)
        assert sorted(answer["count"] for answer in answers) == list(range(1, 101))
        assert {answer["pid"] for answer in answers} == {now.started()[1]}
        await now.wait_for(lambda: not is_alive(old))
        assert now.alive() == now.started()[1:]
        assert len(now.started()) == 2

    play(tmp_path, scene)


def test_a_holder_that_ends_in_order_hands_the_server_over(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        await counted(now.hosts, 5)
        others, holder = now.others(), now.holder()
        answers: list[dict[str, Any]] = []

        async def restart() -> None:
            holder.signal(signal.SIGTERM)
            assert await asyncio.to_thread(holder.wait) == 0

        async with asyncio.TaskGroup() as tasks:
            restarted = tasks.create_task(restart())
            while not restarted.done():
                answers += await counted(others, 5)
        assert [host.outcomes for host in others] == [{}, {}], [host.strange for host in others]
        first, second = now.started()
        assert {answer["pid"] for answer in answers} <= {first, second}
        events = [line for line in now.events() if line.split()[0] in ("start", "end")]
        assert events == [f"start {first}", f"end {first}", f"start {second}"]
        after = [answer["count"] for answer in answers if answer["pid"] == second]
        assert sorted(after) == list(range(1, len(after) + 1))

    play(tmp_path, scene)


def test_a_holder_that_ends_in_order_passes_nothing_new_to_its_server(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        await counted(now.hosts, 1)
        others, holder = now.others(), now.holder()
        [first] = now.started()
        holding = asyncio.create_task(others[0].call("counter", "hold", {}))
        await now.wait_for(lambda: now.noted("held") == 1)
        holder.signal(signal.SIGTERM)
        for _ in range(3):  # its loop needs two turns to tell the server's process
            await now.wait_for(lambda: holder.status("/readyz") == 503)
        counting = asyncio.create_task(count(others[1]))
        answered, _ = await asyncio.wait({counting}, timeout=1.0)
        assert not answered
        (now.folder / "release").touch()
        held, counted_next = await asyncio.gather(holding, counting)

        assert held is not None
        assert json.loads(held)["pid"] == first
        [second] = now.alive()
        assert counted_next == {"pid": second, "count": 1}
        assert await asyncio.to_thread(holder.wait) == 0

    play(tmp_path, scene)


def test_calls_go_on_while_the_engine_is_away(tmp_path: Path) -> None:
    async def scene(now: CounterScene) -> None:
        await counted(now.hosts, 5)
        await asyncio.to_thread(now.running.engine.stop)
        end = time.monotonic() + float(os.environ.get("AWAY", "8"))
        calls = 15
        while time.monotonic() < end:
            calls += len(await counted(now.hosts, 5))
        await asyncio.to_thread(now.running.engine.start)
        for replica in now.running.replicas:
            await now.wait_for(lambda: replica.status("/readyz") == 200)  # noqa: B023
        answers = await counted(now.hosts, 5)
        assert max(answer["count"] for answer in answers) == calls + 15
        assert all(not host.outcomes for host in now.hosts), [host.strange for host in now.hosts]
        assert len(now.started()) == 1

    play(tmp_path, scene)


def test_who_can_not_know_the_holder_says_so(tmp_path: Path) -> None:
    """The engine is away, and this replica has never used the server."""

    async def scene(now: CounterScene) -> None:
        first, second, _ = now.hosts
        await counted([first], 1)
        await asyncio.to_thread(now.running.engine.stop)
        assert await count(second) is None
        assert second.outcomes == {"failed": 1}
        assert "which replica runs it is not known" in second.strange[0]
        await asyncio.to_thread(now.running.engine.start)

        async def counts() -> bool:
            return await count(second) is not None

        end = time.monotonic() + END
        while not await counts():
            assert time.monotonic() < end, second.strange
        assert len(now.started()) == 1

    play(tmp_path, scene)
