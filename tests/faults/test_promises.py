"""Several faults at once, as they come in life, and what is promised then."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.upstream.connection import GATHER, REFRESH_PAUSE
from tests.faults.scene import OTHER, faulty
from tests.faults.web import box_call, served
from tests.kit.clock import eventually, takes_at_most
from tests.kit.config import entry
from tests.kit.http_host import Peer, Port
from tests.kit.processes import pids_in
from tests.kit.results import json_text, open_toolbox

pytestmark = pytest.mark.usefixtures("forked_commands")

CHANGED = "notifications/tools/list_changed"


@pytest.mark.fault("F16", "F17", "F18")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
def test_of_ten_servers_three_are_bad_and_the_others_are_there_in_time(
    tmp_path: Path, modern: bool
) -> None:
    """One that takes very long, one that is not there, one that does not list its tools."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    servers: dict[str, Any] = {f"good{n}": entry() for n in range(6)}  # and the one beside
    servers |= {
        "slow": entry(f"gate={gate}"),
        "missing": {"command": "no-such-command-anywhere"},
        "silent": entry("hang_list"),
    }
    with faulty(tmp_path, servers, modern=modern, limits={"openWait": 0.6}) as host:
        asked = host.begin("open_toolbox", {"toolbox_name": "dev"})
        with takes_at_most(1):
            assert host.result("tools/list")["tools"]
        with takes_at_most(0.6):
            value = json.loads(host.outcome(asked)["content"][0]["text"])
        while value["servers_connected"] < 7:  # a busy machine needs longer to start them
            with takes_at_most(0.6):
                value = host.open()
        reasons = {one["server"]: one["reason"] for one in value["unavailable"]}

        assert value["servers_connected"] == 7
        shown = {tool["source_server"] for tool in value["tools"]}
        assert shown == {OTHER, *(f"good{n}" for n in range(6))}
        assert reasons.keys() == {"slow", "missing", "silent"}
        assert reasons["slow"].startswith("still starting (")
        assert reasons["silent"].startswith("still starting (")
        assert "command not found" in reasons["missing"]
        gate.open("w").close()
        with takes_at_most(1):
            assert json_text(host.use("slow", "echo"))["name"] == "echo"


@pytest.mark.fault("F55")
def test_a_file_that_is_written_fifty_times_a_second_costs_no_call_and_no_connection(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    with faulty(tmp_path, {"a": entry(env={"PIDFILE": str(pids)})}) as host:
        host.open()
        file, beside = tmp_path / "workbench-config.json", tmp_path / "written-beside.json"
        config = json.loads(file.read_text())

        def with_toolbox(name: str) -> str:
            other = {"mcpServers": {"late": entry()}}
            return json.dumps({"toolboxes": {**config["toolboxes"], name: other}})

        for n in range(50):
            good = with_toolbox(f"box{n}")
            if n % 3 == 0:
                file.write_text(good[: len(good) // 2])
            elif n % 3 == 1:
                beside.write_text(good)
                beside.rename(file)
            else:
                file.write_text('{"toolboxes": {"dev": {"mcpServers": {"a": {"command": 5}}}}}')
            assert json_text(host.use("a", "echo"))["name"] == "echo"
            time.sleep(0.02)
        file.write_text('{"toolboxes": ')
        eventually(lambda: "warnings" in host.open(), "what is there in the end is told")
        assert json_text(host.use("a", "echo"))["name"] == "echo"

        beside.write_text(with_toolbox("last"))
        beside.rename(file)
        eventually(lambda: "warnings" not in host.open(), "the next good file is taken")
        assert host.open("last")["servers_connected"] == 1
        assert len(pids_in(pids)) == 1, "nothing of all that was about this server"


@pytest.mark.fault("F32")
async def test_modern_hosts_that_listen_hear_of_a_change_once_and_others_of_none(
    tmp_path: Path,
) -> None:
    boxes = ({"a": entry()}, {"a": entry()})
    async with served(tmp_path, *boxes, toolMode="dynamic") as road:
        # The healthy server as well: until it has listed its own tools, it has those of the equal ones.
        for box in ("box0", "box1", "dev"):
            await road.port.ask_modern("tools/call", open_toolbox(box))
        everything = [await listening(road.port, "/mcp") for _ in range(2)]
        one = await listening(road.port, "/mcp/box0")
        other = await listening(road.port, "/mcp/box1")

        await road.port.ask_modern("tools/call", box_call("a", "flip", {"name": "new"}, "box0"))
        for peer in (*everything, one):
            assert (await peer.message())["method"] == CHANGED
        await road.port.ask_modern("tools/call", box_call("a", "flip", {"name": "own"}, "box1"))
        for peer in (*everything, other):
            assert (await peer.message())["method"] == CHANGED, "the first that `other` heard"
        listed = (await road.port.ask_modern("tools/list")).result["tools"]

        names = [tool["name"] for tool in listed]
        assert {"box0__a__new", "box1__a__own"} <= set(names)
        # A change is announced three times, and heard once: nobody hears more.
        more = [asyncio.ensure_future(peer.message()) for peer in (*everything, one, other)]
        heard, _ = await asyncio.wait(more, timeout=GATHER + 2 * REFRESH_PAUSE)
        for task in more:
            task.cancel()
        await asyncio.gather(*more, return_exceptions=True)
        assert not heard


async def listening(port: Port, path: str) -> Peer:
    """A host that wants to hear of changes at this address, and is told that it will."""
    peer = await port.connect()
    params = {"notifications": {"toolsListChanged": True}}
    body, headers = port.modern("subscriptions/listen", params)
    peer.send(port.request(body, headers, path=path))
    assert (await peer.head())[0] == 200
    assert (await peer.message())["method"] == "notifications/subscriptions/acknowledged"
    return peer
