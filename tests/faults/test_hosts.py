"""Hosts that cancel, vanish, stop reading or look alike: each gets its own, and only its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.transport.http.server import TICK
from tests.faults.scene import AT_ONCE, LAG
from tests.faults.web import Served, box_call, served
from tests.kit.clock import PATIENCE, takes_at_most, until
from tests.kit.config import entry
from tests.kit.http_host import Answer, Peer, Port, Session, rpc
from tests.kit.results import json_text, open_toolbox
from tests.kit.vitals import megabytes

pytestmark = pytest.mark.usefixtures("forked_commands")


async def call(port: Port, tool: str, arguments: Any = None, server: str = "a") -> Any:
    """What a tool says to a modern host that comes for this one call."""
    answer = await port.ask_modern("tools/call", box_call(server, tool, arguments))
    return json_text(answer.result)


async def begun(port: Port, params: dict[str, Any]) -> Peer:
    """A modern host's call whose answer nobody has read yet."""
    peer = await port.connect()
    peer.send(port.request(*port.modern("tools/call", params)))
    return peer


async def called(port: Port, server: str) -> int:
    return (await call(port, "stats", server=server))["methods"].count("tools/call")


async def seen(port: Port, what: str, server: str, count: int) -> list[int]:
    """What the server has counted, once it is so many."""
    found: list[int] = []
    while len(found) < count:
        found = (await call(port, "stats", server=server))[what]
    return found


# Leaving. On a pipe: test_cancelling.py


@pytest.mark.fault("F31", "F42")
@pytest.mark.usefixtures("real_commands")
async def test_hosts_over_http_that_leave_cancel_their_calls_in_the_modern_way_only(
    tmp_path: Path,
) -> None:
    await vanishing(tmp_path, hosts=30)


async def vanishing(folder: Path, *, hosts: int, limit: float = 50) -> None:
    """So many hosts of each era leave in the middle of a call. Nothing of them stays behind."""
    servers = {"a": entry(), "b": entry("modern", era="modern")}
    async with served(folder, servers, limit=limit, counted=True) as road:
        for server in servers:
            await call(road.port, "stats", server=server)
        before = road.descriptors()
        for server in servers:
            await vanish_from(road.port, server, hosts)
        await vanish_with_sessions(road.port, hosts)
        road.port.close()
        await until(lambda: road.descriptors() <= before)
    assert road.command.complaints == "", "nothing to complain about"


async def vanish_from(port: Port, server: str, hosts: int) -> None:
    """Modern hosts: the end of the connection is a cancel."""
    peers = [await begun(port, box_call(server, "hang")) for _ in range(hosts)]
    while await called(port, server) < hosts + 2:
        """They are all on their way; the question is a call as well, and there was one before."""
    with takes_at_most(AT_ONCE):
        for peer in peers:
            peer.close()
        cancelled = await seen(port, "cancelled", server, hosts)
    assert len(set(cancelled)) == hosts, "each by its own number"


async def vanish_with_sessions(port: Port, hosts: int) -> None:
    """Legacy hosts: they might come back for their answers, until their sessions end."""
    sessions = [await port.open() for _ in range(hosts)]
    calls, before = await called(port, "a"), len((await call(port, "stats"))["cancelled"])
    for n, session in enumerate(sessions):
        peer = await port.connect()
        peer.send(
            session.request(session.ask("tools/call", box_call("a", "hold", {"key": str(n)})))
        )
    while await called(port, "a") < calls + hosts + 2:
        """They are all on their way."""
    port.close()
    for session in sessions:
        assert (await session.post(b"", method="DELETE")).status in (200, 204)
    assert len(await seen(port, "cancelled", "a", before + hosts)) == before + hosts


@pytest.mark.fault("F31")
async def test_a_legacy_host_that_only_lost_its_connection_has_cancelled_nothing(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, {"a": entry()}) as road:
        session = await road.port.open()
        peer = await road.port.connect()
        peer.send(session.request(session.ask("tools/call", box_call("a", "hold", {"key": "k"}))))
        while "tools/call" not in (await call(road.port, "stats"))["methods"][:-1]:
            """It is not there yet."""
        peer.close()
        await call(road.port, "echo")
        assert (await call(road.port, "stats"))["cancelled"] == []

        told = rpc("notifications/cancelled", {"requestId": 1})
        with takes_at_most(AT_ONCE):
            assert (await session.post(told)).status == 202
            assert len(await seen(road.port, "cancelled", "a", 1)) == 1


# What they hear


@pytest.mark.fault("F32")
async def test_a_change_is_heard_once_by_those_who_see_it_and_by_nobody_else(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, {"a": entry()}, {"a": entry()}, toolMode="dynamic") as road:
        hosts: list[tuple[Session, Peer]] = []
        for box in ("box0", "box0", "box1"):
            session = await road.port.open()
            stream = await session.listen()
            await session.result("tools/call", open_toolbox(box))
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            await session.result("tools/list")
            hosts.append((session, stream))

        for round in range(2):
            flip = box_call("a", "flip", {"name": f"late{round}"})  # announces it three times
            with takes_at_most(1):
                await hosts[0][0].result("tools/call", flip)
                for session, stream in hosts[:2]:
                    assert (await stream.message())["method"] == "notifications/tools/list_changed"
                    names = [tool["name"] for tool in (await session.result("tools/list"))["tools"]]
                    assert f"box0__a__late{round}" in names

        await hosts[2][0].result("tools/call", box_call("a", "flip", {"name": "own"}, "box1"))
        await hosts[2][1].message()
        names = [tool["name"] for tool in (await hosts[2][0].result("tools/list"))["tools"]]
        assert "box1__a__own" in names, "the first that it heard was its own"


# Hosts that look alike


@pytest.mark.fault("F33")
async def test_a_hundred_hosts_with_equal_ids_and_tokens_get_their_own_answers(
    tmp_path: Path,
) -> None:
    await lookalikes(tmp_path, hosts=100, calls=6)


async def lookalikes(folder: Path, *, hosts: int, calls: int, limit: float = 50) -> None:
    """Every host uses the same ids and tokens; every answer carries what only its host has said."""
    servers = {"a": entry(), "b": entry("modern", era="modern")}
    async with served(folder, servers, limit=limit) as road:

        async def host(number: int) -> int:
            session = await road.port.open() if number % 2 else None
            peer = await road.port.connect()
            for turn in range(calls):
                server, steps = "ab"[turn % 2], (number + turn) % 4
                nonce = {"nonce": f"{number}/{turn}", "n": steps}
                tool = "progress" if turn % 3 == 0 else "echo"
                params = {**box_call(server, tool, nonce), "_meta": {"progressToken": "same"}}
                peer.send(frame(road, session, params, id=turn + 1))
                check(await peer.answer(), tool, nonce, id=turn + 1)
            return calls

        async with asyncio.TaskGroup() as group:
            done = [group.create_task(host(number)) for number in range(hosts)]
        assert sum(task.result() for task in done) == hosts * calls


def frame(road: Served, session: Session | None, params: Any, id: int) -> bytes:
    if session is not None:
        return session.request(rpc("tools/call", params, id))
    body, headers = road.port.modern("tools/call", params)
    return road.port.request(json.dumps({**json.loads(body), "id": id}).encode(), headers)


def check(answer: Answer, tool: str, nonce: Any, id: int) -> None:
    streamed = answer.headers["content-type"] == "text/event-stream"
    *notices, last = answer.messages if streamed else [answer.json]
    assert last["id"] == id
    if tool == "echo":
        assert json_text(last["result"])["arguments"] == nonce
        assert notices == []
        return
    assert json_text(last["result"]) == nonce["n"]
    assert [n["params"]["progress"] for n in notices] == list(range(nonce["n"]))
    assert all(n["params"]["progressToken"] == "same" for n in notices)


# Who does not read


@pytest.mark.fault("F52")
@pytest.mark.usefixtures("real_commands")
async def test_a_host_over_http_that_does_not_read_costs_itself_alone(tmp_path: Path) -> None:
    async with served(tmp_path, {"a": entry("floods")}, lag=LAG * 2) as road:
        await call(road.port, "echo")
        before = megabytes(road.pid)
        # Few notices, but large ones: each carries the token of its host. All of them are 24 MB.
        token = "t" * 1000
        params = {**box_call("a", "progress", {"n": 22_000}), "_meta": {"progressToken": token}}
        stalled = await begun(road.port, params)
        # The same server answers others as soon as it has said all that.
        async with asyncio.timeout(PATIENCE):
            assert (await call(road.port, "echo"))["name"] == "echo"

        assert megabytes(road.pid, "VmHWM") - before < 64
        received = await stalled.reader.read()  # it is cut off: nobody keeps 24 MB for it
        assert len(received) < 18_000_000
        assert b'"result"' not in received


@pytest.mark.fault("F52")
async def test_a_host_that_only_pauses_gets_everything(tmp_path: Path) -> None:
    """Whoever is slow for longer than our clock takes for a look is not gone."""
    size = 12_000_000
    async with served(tmp_path, {"a": entry()}) as road:
        await call(road.port, "echo")
        pausing = await begun(road.port, box_call("a", "big", {"n": size}))
        await asyncio.sleep(2 * TICK)  # it is looked at while it does not read: that is the subject
        assert len((await pausing.answer()).json_text) == size
