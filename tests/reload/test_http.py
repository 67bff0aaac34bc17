"""Hosts on a port while the configuration changes: endpoints, sessions, streams."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench.core.spec import (
    Limits,
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolMode,
)
from mcp_workbench.upstream.pool import TICK
from tests.kit.clock import PATIENCE, eventually, until
from tests.kit.config import config_file, entry, lean, snapshot, spec, write_config
from tests.kit.http_host import Port, Session, port, rpc
from tests.kit.processes import alive, let_through, pids_in
from tests.kit.results import INITIALIZE, LEGACY, Message, use_tool
from tests.kit.servers import ASKER
from tests.soak.reloads import OnHttp, opened

TOOLS = "notifications/tools/list_changed"


def both(mode: ToolMode = "proxy", **more: ServerSpec) -> Snapshot:
    return snapshot(spec("fixture"), spec("b", toolbox="ops"), *more.values(), mode=mode)


def one(mode: ToolMode = "proxy") -> Snapshot:
    return snapshot(spec("fixture"), mode=mode)


def open_ops() -> Message:
    return {"name": "open_toolbox", "arguments": {"toolbox_name": "ops"}}


async def status(at: Port, path: str) -> int:
    return (await at.ask(*at.modern("tools/list"), path=path)).status


async def test_endpoints_appear_and_disappear() -> None:
    async with port(one()) as at:
        assert (await status(at, "/mcp/dev"), await status(at, "/mcp/ops")) == (200, 404)

        at.front.gateway.reload(both())
        assert (await status(at, "/mcp/dev"), await status(at, "/mcp/ops")) == (200, 200)

        at.front.gateway.reload(one())
        assert (await status(at, "/mcp/dev"), await status(at, "/mcp/ops")) == (200, 404)

        at.front.gateway.reload(both())
        assert await status(at, "/mcp/ops") == 200


async def test_a_session_of_an_endpoint_that_is_gone_is_told_so_and_goes_on_when_it_is_back() -> (
    None
):
    async with port(both()) as at:
        session = await at.open(path="/mcp/ops")
        await session.result("tools/call", open_ops())

        at.front.gateway.reload(one())

        told = await session.result("tools/call", open_ops())
        assert told["content"][0]["text"] == "Toolbox 'ops' not found"
        params: Message = INITIALIZE
        assert (await at.ask(rpc("initialize", params, 1), path="/mcp/ops")).status == 404
        stranger = {"mcp-session-id": "nobody"}
        assert (await at.ask(rpc("ping", {}, 1), stranger, path="/mcp/ops")).status == 404

        at.front.gateway.reload(both())
        assert "isError" not in await session.result("tools/call", open_ops())

        at.front.gateway.reload(one())
        assert (await session.post(b"", "DELETE")).status == 200


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_through_an_endpoint_that_vanishes_is_answered(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that is told to leave is killed in the same moment.
    monkeypatch.setattr("mcp_workbench.transport.process.POLITE", 0.0)
    monkeypatch.setattr("mcp_workbench.transport.process.FIRM", 0.0)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = {"toolbox": "ops", "server": "b", "tool": "slow"}
    params = {"name": "use_tool", "arguments": {"tool": slow, "arguments": {"gate": str(gate)}}}
    env = {"PIDFILE": str(tmp_path / "pids")}
    before = snapshot(spec("fixture"), spec("b", toolbox="ops", env=env))
    async with port(before) as at:
        peer = await at.connect()
        if era == "legacy":
            session = await at.open(path="/mcp/ops")
            peer.send(session.request(session.ask("tools/call", params)))
        else:
            peer.send(at.request(*at.modern("tools/call", params), path="/mcp/ops"))
        await until(lambda: len(pids_in(tmp_path / "pids")) == 1)
        await at.ask_modern("tools/call", params | {"arguments": {"tool": slow | {"tool": "echo"}}})

        at.front.gateway.reload(one())
        assert (
            await at.ask_modern("tools/call", use_tool("fixture", "echo"))
        ).json_text  # by the server that stays

        await until(lambda: let_through(gate))
        assert (await peer.answer()).json_text == {"pid": pids_in(tmp_path / "pids")[0]}
        await until(lambda: not any(map(alive, pids_in(tmp_path / "pids"))))


async def test_only_sessions_that_see_a_difference_are_told() -> None:
    async with port(both("dynamic")) as at:
        all_of_it, dev = await at.open(), await at.open(path="/mcp/dev")
        streams = [await all_of_it.listen(), await dev.listen()]
        await all_of_it.result("tools/call", open_ops())
        assert (await streams[0].message())["method"] == TOOLS

        at.front.gateway.reload(one("dynamic"))
        assert (await streams[0].message())["method"] == TOOLS

        added = snapshot(spec("fixture"), spec("c"), mode="dynamic")
        at.front.gateway.reload(added)
        assert (await streams[1].message())["method"] == TOOLS  # and nothing before it
        listed = await dev.result("tools/list")
        assert "dev__c__echo" in [tool["name"] for tool in listed["tools"]]


async def test_a_modern_stream_carries_the_news() -> None:
    async with port(one()) as at:
        peer = await at.connect()
        wish = {"notifications": {"toolsListChanged": True}}
        peer.send(at.request(*at.modern("subscriptions/listen", wish)))
        assert (await peer.head())[0] == 200
        assert (await peer.message())["method"] == "notifications/subscriptions/acknowledged"

        at.front.gateway.reload(both())

        assert (await peer.message())["method"] == TOOLS
        listed = (await at.ask_modern("tools/list")).result["tools"]
        assert "Toolboxes: dev, ops" in json.dumps(listed)


async def test_each_host_s_own_server_is_replaced_for_each() -> None:
    def own(**env: str) -> Snapshot:
        return snapshot(spec("fixture", scope="session", env=env))

    async with port(own()) as at:
        hosts = [await at.open(), await at.open()]
        before = [(await host.use("stats")).json_text["pid"] for host in hosts]

        at.front.gateway.reload(own(NOW="1"))

        after = [(await host.use("stats")).json_text["pid"] for host in hosts]
        assert len({*before, *after}) == 4
        modern = await at.ask_modern("tools/call", use_tool("fixture", "env"))
        assert modern.json_text["env"]["NOW"] == "1"
        await until(lambda: not any(map(alive, before)))


async def test_whoever_is_being_asked_is_not_hurried() -> None:
    def asker(**env: str) -> Snapshot:
        command = StdioCommand(sys.executable, lean(ASKER), tuple(env.items()))
        address = ServerAddress("dev", "fixture")
        server = ServerSpec(address, command, era="legacy", scope="session")
        return snapshot(server, limits=Limits(drain=0.0))

    async with port(asker()) as at:
        can: Message = {"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}}
        opening = await at.ask(rpc("initialize", can, 0))
        session = Session(at, opening.headers["mcp-session-id"], LEGACY, "/mcp")
        call = await session.begin("name")
        await call.head()
        question = await call.message()
        assert question["method"] == "elicitation/create"

        at.front.gateway.reload(asker(NOW="1"))
        assert (await session.use("can")).status == 200  # by the successor
        await asyncio.sleep(3 * TICK)  # the clock has looked at the old one

        answer = {"action": "accept", "content": {"name": "Ada"}}
        told = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
        assert (await session.post(json.dumps(told).encode())).status == 202
        assert "Ada" in json.dumps(await call.message())


def test_the_command_follows_its_file_and_tells_strangers_little(tmp_path: Path) -> None:
    path = config_file(tmp_path, {"fixture": entry()})
    argv = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(path), "--http", "0"]
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(argv, stderr=file, env=dict(os.environ))
    try:
        eventually(lambda: "listening on" in log.read_text(), "the port")
        found = re.search(r"127\.0\.0\.1:(\d+)", log.read_text())
        assert found
        host = OnHttp(int(found[1]))

        path.write_text('{"mcpServers": ')
        eventually(lambda: "warnings" in opened(host), "the broken file is told")
        (told,) = opened(host)["warnings"]
        assert "`mcp-workbench check`" in told
        assert str(tmp_path) not in told
        assert "WB" in log.read_text() or ":1:16" in log.read_text()

        write_config(tmp_path, {"toolboxes": {"dev": {"mcpServers": {"x": entry()}}}})
        process.send_signal(signal.SIGHUP)
        eventually(lambda: "warnings" not in opened(host), "the good one is taken")
        assert opened(host)["tools"][0]["source_server"] == "x"
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert "Traceback" not in log.read_text()


async def test_a_session_outlives_a_thousand_reloads() -> None:
    async with port(both()) as at:
        session = await at.open()
        for _ in range(500):
            at.front.gateway.reload(one())
            at.front.gateway.reload(both())

        assert "isError" not in await session.result("tools/call", open_ops())
