"""Nothing piles up: processes, descriptors, tasks, sessions and memory after many of everything."""

import asyncio
import logging
import os
import random
import signal
from pathlib import Path

import pytest

from mcp_workbench.upstream.connection import Connection
from tests.faults.scene import faulty
from tests.faults.web import box_call, served
from tests.http_servers.scenes import bench
from tests.kit.clock import PATIENCE, eventually, until
from tests.kit.config import entry, snapshot, spec, tool, url_spec
from tests.kit.inside import InsideWorkbench
from tests.kit.processes import children, gone, pids_in
from tests.kit.results import json_text
from tests.kit.servers.bad_http import bad_http
from tests.kit.vitals import descriptors, megabytes

REFRESHES = 300
WORK = 11  # calls after which the end of a server is no failure to start


@pytest.mark.fault("F6")
def test_restarts_leave_no_process_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    restarts(tmp_path, times=10)


def restarts(folder: Path, *, times: int) -> None:
    """A server is killed so often, and everything is as it was."""
    pids = folder / "pids"
    with faulty(folder, {"bad": entry(env={"PIDFILE": str(pids)})}) as host:
        host.use("bad", "echo")
        pid = host.process.pid
        eventually(
            lambda: len(children(pid, zombies=True)) == 3, "both servers and their guard run"
        )
        fds = descriptors(pid)
        memory = 0.0
        for turn in range(times):
            calls = [host.begin_use("bad", "stats") for _ in range(WORK)]
            for id in calls:
                host.answer(id)
            last = pids_in(pids)[-1]
            os.kill(last, signal.SIGKILL)
            eventually(lambda pid=last: not Path(f"/proc/{pid}").exists(), "it is reaped")
            if turn == times // 5:
                memory = megabytes(pid)  # warm
        host.use("bad", "echo")

        assert len(pids_in(pids)) == times + 1
        eventually(lambda: len(children(pid, zombies=True)) == 3, "no zombie")
        eventually(lambda: descriptors(pid) <= fds, "no descriptor")
        assert megabytes(pid) < memory * 1.1 + 2


@pytest.mark.fault("F6", "F34")
async def test_servers_end_in_any_order_and_leave_no_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await disorder(tmp_path, rounds=2, caplog=caplog)


async def disorder(folder: Path, *, rounds: int, caplog: pytest.LogCaptureFixture) -> None:
    """Ten servers, stopped or killed or left in random order, from tasks that did not start them."""
    caplog.set_level(logging.DEBUG)
    dice = random.Random(5)
    before = len(asyncio.all_tasks())
    for turn in range(rounds):
        pids = folder / f"pids{turn}"
        specs = [spec(f"s{n}", env={"PIDFILE": str(pids)}) for n in range(10)]
        async with asyncio.timeout(PATIENCE), InsideWorkbench(snapshot(*specs)) as workbench:
            assert (await workbench.open_toolbox("dev")).servers_connected == 10
            live = workbench.gateway.connected
            dice.shuffle(live)
            async with asyncio.TaskGroup() as group:
                for connection in live[:8]:
                    group.create_task(end(connection, dice.random()))
            await until(lambda gone=live[:8]: all(one.over for one in gone))
            for one in live[8:]:
                answer = await workbench.use_tool(tool(one.spec.address.server, "echo"))
                assert json_text(answer)["name"] == "echo"
        assert gone(pids_in(pids))
    assert len(asyncio.all_tasks()) == before
    assert "cancel scope" not in caplog.text
    assert "Traceback" not in caplog.text


async def end(connection: Connection, drawn: float) -> None:
    await asyncio.sleep(drawn / 50)
    if drawn < 0.5:
        connection.stop()
    else:
        answer = FutureCall()
        connection.conversation.begin("tools/call", b'{"name":"die","arguments":{}}', answer)
    await connection.gone()


class FutureCall:
    """Somebody who waits for an answer that does not come."""

    suspended = False
    asker = None

    def settled(self, answer: object) -> None: ...
    def lost(self, loss: object) -> None: ...
    def progressed(self, params: object) -> None: ...
    def give_way(self) -> bool:
        return False


@pytest.mark.fault("F38")
async def test_hundreds_of_refreshes_open_no_session() -> None:
    async with (
        bad_http() as bad,
        bench(url_spec(bad.url("/session/ok")), spec("pipe")) as workbench,
    ):
        await workbench.view.open("dev")
        for connection in workbench.gateway.connected:
            for _ in range(REFRESHES):
                await connection.refresh()
        seen = json_text(await workbench.use_tool(tool("pipe", "stats")))

        assert (seen["lists"], seen["methods"].count("initialize")) == (REFRESHES + 1, 1)
        assert len(bad.calls("tools/list")) == REFRESHES + 1
        assert len(bad.calls("initialize")) == len(bad.sessions) == 1
        assert bad.connects < 10


@pytest.mark.fault("F41")
async def test_calls_and_sessions_do_not_pile_up(tmp_path: Path) -> None:
    """The short form. Sizes are such that 20 KB a session or 2 KB a call would be seen."""
    await growth(tmp_path, sessions=120, calls=1200, most=2.4)


async def growth(
    folder: Path, *, sessions: int, calls: int, most: float, limit: float = 50
) -> None:
    """Memory after so many legacy sessions and modern calls, against as many before it."""
    async with served(folder, {"a": entry()}, limit=limit, counted=True) as road:
        port = road.port

        async def live() -> None:
            for _ in range(sessions):
                session = await port.open()
                await session.post(session.ask("tools/call", box_call("a", "echo")))
                await session.post(b"", method="DELETE")
                port.close()
            peer = await port.connect()
            for number in range(calls):
                peer.send(
                    port.request(*port.modern("tools/call", box_call("a", "echo", {"n": number})))
                )
                assert (await peer.answer()).json_text["arguments"] == {"n": number}
            port.close()

        await live()  # warm
        before, fds = megabytes(road.pid), road.descriptors()
        await live()
        assert megabytes(road.pid) - before < most
        await until(lambda: road.descriptors() <= fds)
