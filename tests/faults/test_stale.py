"""A list of tools that can't be read, or not yet: the last good one is shown, and says that it is that."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.spec import Limits
from mcp_workbench.gateway.workbench import Workbench
from mcp_workbench.upstream import tool_list as listing
from tests.faults.scene import OTHER, Watched, faulty
from tests.kit.clock import PATIENCE, eventually, takes_at_most, until
from tests.kit.config import entry, snapshot, spec, tool
from tests.kit.processes import alive, kill_server, let_through, pids_in
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")

STALE = "mcp-workbench/stale"
WAIT = {"openWait": 0.4}


class Slow:
    """A server that lists its tools at once, unless there is a gate."""

    def __init__(self, folder: Path) -> None:
        self.pids = folder / "pids"
        self._tools = folder / "tools.json"
        self._gate = folder / "list-gate"
        self.offers("stats")

    @property
    def entry(self) -> dict[str, Any]:
        flags = (f"tools={self._tools}", f"list_gate={self._gate}")
        return entry(*flags, env={"PIDFILE": str(self.pids)})

    def offers(self, *names: str) -> None:
        self._tools.write_text(json.dumps([{"name": n, "inputSchema": {}} for n in names]))

    def shut(self) -> None:
        os.mkfifo(self._gate)

    def open(self) -> None:
        """Let it go on as soon as it waits there; from then on it lists them at once again."""
        eventually(lambda: let_through(self._gate), "it is at the gate")
        self._gate.unlink()

    def killed(self) -> None:
        kill_server(pids_in(self.pids)[-1])


def opened(host: Watched, **more: Any) -> tuple[Any, Any]:
    """What `open_toolbox` says, and what it says of stale lists for programs."""
    result = host.call("open_toolbox", {"toolbox_name": "dev", **more})
    assert "isError" not in result, result
    text = texts(result)[0]
    return text if more else json.loads(text), result.get("_meta", {}).get(STALE)


def names(value: Any, server: str = "bad") -> list[str]:
    return [one["name"] for one in value["tools"] if one["source_server"] == server]


@pytest.mark.fault("F19")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
def test_a_server_that_is_back_and_has_not_listed_shows_its_last_list_as_such(
    tmp_path: Path, modern: bool
) -> None:
    bad = Slow(tmp_path)
    with faulty(tmp_path, {"bad": bad.entry}, modern=modern, limits=WAIT) as host:
        host.use("bad", "stats")
        fresh, mark = opened(host)
        assert (names(fresh), mark, fresh["servers_connected"]) == (["stats"], None, 2)
        bad.offers("stats", "new")
        bad.shut()
        bad.killed()

        with takes_at_most(0.4):
            value, [mark] = opened(host)
        [missing] = value["unavailable"]
        assert names(value) == ["stats"], "the last good list"
        assert names(value, OTHER), "and the others' on time"
        assert value["servers_connected"] == 1
        assert missing["server"] == mark["server"] == "bad"
        assert missing["reason"].startswith("still starting (")
        assert "s); its tools are listed as they were" in missing["reason"]
        assert missing["reason"].startswith(mark["reason"])
        assert 0 <= mark["seconds"] <= 2 * PATIENCE
        brief, [mark] = opened(host, detail="names")
        assert "dev/bad: stats" in brief
        assert "unavailable: bad (still starting" in brief

        bad.open()
        assert json_text(host.use("bad", "new"))["name"] == "new"
        fresh, mark = opened(host)
        assert (names(fresh), mark, "unavailable" in fresh) == (["stats", "new"], None, False)


@pytest.mark.fault("F18", "F19")
def test_the_last_list_may_be_that_of_another_process(tmp_path: Path) -> None:
    bad = Slow(tmp_path)
    home = {"MCP_WORKBENCH_HOME": str(tmp_path / "home")}
    with faulty(tmp_path, {"bad": bad.entry}, env=home) as host:
        assert names(opened(host)[0]) == ["stats"]
    bad.shut()

    with faulty(tmp_path, {"bad": bad.entry}, limits=WAIT, env=home) as host:
        value, [mark] = opened(host)
        assert (names(value), mark["server"]) == (["stats"], "bad")
        assert value["unavailable"][0]["server"] == "bad"
        waiting = host.begin_use("bad", "stats")
        bad.open()
        assert "lists" in json_text(host.answer(waiting)["result"]), (
            "it is called as soon as it is there"
        )


@pytest.mark.fault("F18", "F19")
@pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
def test_in_dynamic_mode_the_list_itself_says_whose_tools_are_old(
    tmp_path: Path, modern: bool
) -> None:
    bad = Slow(tmp_path)
    servers = {"bad": bad.entry}
    with faulty(tmp_path, servers, modern=modern, toolMode="dynamic", limits=WAIT) as host:
        host.call("dev__bad__stats", {})
        host.call("open_toolbox", {"toolbox_name": "dev"})
        fresh = host.result("tools/list")
        assert STALE not in fresh.get("_meta", {})
        bad.shut()
        bad.killed()
        waiting = host.begin("dev__bad__stats", {})
        eventually(lambda: len(pids_in(bad.pids)) == 2, "it is started again")

        with takes_at_most(0.1):
            listed = host.result("tools/list")
        [mark] = listed["_meta"][STALE]
        assert listed["tools"] == fresh["tools"]
        assert (mark["toolbox"], mark["server"]) == ("dev", "bad")
        assert mark["reason"].startswith("still starting")

        bad.open()
        assert "lists" in json_text(host.answer(waiting)["result"])
        assert STALE not in host.result("tools/list").get("_meta", {})


@pytest.mark.fault("F18")
def test_a_change_that_was_announced_and_can_not_be_read_is_told(tmp_path: Path) -> None:
    with faulty(tmp_path, {"bad": entry("hang_list_again")}) as host:
        before = names(opened(host)[0])
        host.use("bad", "flip", {"name": "late"})

        with takes_at_most(0.1):
            value, [mark] = opened(host)
        [warning] = value["warnings"]
        assert names(value) == before
        assert (value["servers_connected"], "unavailable" in value) == (2, False)
        assert warning.startswith("dev/bad: its tools are listed as they were")
        assert warning.endswith(mark["reason"])
        assert json_text(host.use("bad", "echo"))["name"] == "echo"


@pytest.mark.fault("F18")
async def test_a_list_that_was_not_read_is_asked_for_again_when_somebody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(spec("bad", "hang_list_again"), spec("b"))) as workbench,
    ):
        opened = await workbench.open_toolbox("dev")
        monkeypatch.setattr(listing, "LIST_SECONDS", 0.1)  # nobody wants to wait for half a minute
        await workbench.use_tool(tool("bad", "flip"), {"name": "late"})

        lists = 0
        while lists < 4:  # once at its start, once for the announcement
            opened = await workbench.open_toolbox("dev")
            lists = json_text(await workbench.use_tool(tool("bad", "stats")))["lists"]
            await asyncio.sleep(0.05)

        assert [one.server for one in opened.stale] == ["bad"]
        assert opened.servers_connected == 2
        assert "late" not in [one.name for one in opened.tools]


@pytest.mark.fault("F18")
async def test_without_a_last_list_it_is_unavailable_at_the_deadline_of_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    bad = spec("bad", "hang_list", env={"PIDFILE": str(pids)})
    both = snapshot(bad, spec("b"), limits=Limits(open_wait=PATIENCE))
    async with asyncio.timeout(PATIENCE), Workbench(both) as workbench:
        await workbench.use_tool(tool("b", "echo"))
        monkeypatch.setattr(listing, "LIST_SECONDS", 0.2)
        opened = await workbench.open_toolbox("dev")

        assert [one.server for one in opened.unavailable] == ["bad"]
        assert opened.unavailable[0].reason == "it did not list its tools within 0.2 s"
        assert opened.stale == ()
        assert {one.source_server for one in opened.tools} == {"b"}
        await until(lambda: not any(map(alive, pids_in(pids))))
        with pytest.raises(ServerUnavailable, match=r"within 0\.2 s"):
            await workbench.use_tool(tool("bad", "echo"))
