"""How many processes hosts cost, however many there are, and whatever becomes of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, Snapshot
from tests.faults.scene import AT_ONCE, failure, tried_in_time
from tests.faults.web import box_call, served
from tests.kit.clock import takes_at_most, until
from tests.kit.config import entry, snapshot, spec
from tests.kit.http_host import port
from tests.kit.processes import alive, pids_in
from tests.kit.results import json_text, open_toolbox
from tests.kit.servers.bad_http import bad_http_in_a_thread

pytestmark = pytest.mark.usefixtures("forked_commands")

FAILED = "connect_failed"


@pytest.mark.fault("F37")
async def test_however_many_hosts_open_it_a_server_is_one_process(tmp_path: Path) -> None:
    files = [tmp_path / f"pids{n}" for n in range(6)]
    boxes = [{"a": entry(env={"PIDFILE": str(file)})} for file in files]
    async with served(tmp_path, *boxes, options=("--verbose",)) as road:

        async def host(number: int) -> None:
            session = await road.port.open() if number % 2 else None
            for turn in range(6):
                params = open_toolbox(f"box{(number + turn) % 6}")
                if session is not None:
                    opened = await session.result("tools/call", params)
                else:
                    opened = (await road.port.ask_modern("tools/call", params)).result
                assert json_text(opened)["servers_connected"] == 1

        async with asyncio.TaskGroup() as group:
            for number in range(24):
                group.create_task(host(number))

        assert [len(pids_in(file)) for file in files] == [1] * 6
    assert not any(alive(pid) for file in files for pid in pids_in(file))
    counted = [line for line in road.command.complaints.splitlines() if ": process" in line]
    assert counted[6].endswith("started, 7 run now"), "theirs and the healthy neighbour's"
    assert counted[-1].endswith("has ended, 0 run now")


@pytest.mark.fault("F37")
async def test_the_number_of_processes_is_shown_server_by_server(tmp_path: Path) -> None:
    def own(name: str, **more: Any) -> ServerSpec:
        return spec(name, env={"PIDFILE": str(tmp_path / name)}, **more)

    both = snapshot(own("shared"), own("own", scope="session"))
    with bad_http_in_a_thread() as bad:
        dev = both.toolboxes["dev"]
        url = ServerSpec(ServerAddress("dev", "url"), HttpEndpoint(bad.url("/ok")))
        dev = msgspec.structs.replace(dev, servers={**dev.servers, "url": url})
        async with port(Snapshot({"dev": dev})) as opened:
            bench = opened.front.gateway
            sessions = [await opened.open() for _ in range(3)]
            for session in sessions:
                await session.result("tools/call", open_toolbox("dev"))

            counted = {one.address.server: one.processes for one in bench.health()}
            assert counted == {"shared": 1, "own": 3, "url": 0}
            assert bench.processes == 4
            assert [len(pids_in(tmp_path / name)) for name in ("shared", "own")] == [1, 3]
            await sessions[0].post(b"", method="DELETE")
            await until(lambda: bench.processes == 3)
            assert sum(alive(pid) for pid in pids_in(tmp_path / "own")) == 2
    assert bench.processes == 0, "and none is left"


@pytest.mark.fault("F21")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_hosts_with_servers_of_their_own_share_the_tries_of_one_that_keeps_failing(
    tmp_path: Path, modern: bool
) -> None:
    pids = tmp_path / "pids"
    bad = entry("exit_start", scope="session", env={"PIDFILE": str(pids)})
    async with served(tmp_path, {"bad": bad}) as road:

        async def told() -> str:
            """What a host is told that comes for this one call."""
            params = box_call("bad", "echo")
            if modern:
                return failure((await road.port.ask_modern("tools/call", params)).result, FAILED)
            return failure(await (await road.port.open()).result("tools/call", params), FAILED)

        since = time.monotonic()
        while "next try in" not in await told():
            """Its first tries are free, or soon."""
        text = ""
        for _ in range(20):
            with takes_at_most(AT_ONCE):
                text = await told()
            assert "(exit status 3); it failed" in text
            assert "next try in" in text
        tried_in_time(len(pids_in(pids)), text, time.monotonic() - since)
