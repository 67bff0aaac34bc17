"""Servers that nobody uses, and servers that keep failing: stopped, remembered, brought back."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.upstream.health import PATIENCE, pause_after
from tests.kit.clock import eventually
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import alive, kill_server, pids_in
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")

IDLE = 0.4  # seconds; short, and every wait for it is bounded elsewhere


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def noted(pids: Path, *flags: str, **more: Any) -> dict[str, Any]:
    return entry(*flags, env={"PIDFILE": str(pids)}, **more)


def test_an_unused_server_is_stopped_and_the_next_call_starts_it(
    tmp_path: Path, pids: Path
) -> None:
    servers = {"a": noted(pids, idleTimeout=IDLE), "b": entry()}
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        first = json_text(host.use("a", "stats"))["pid"]
        other = json_text(host.use("b", "stats"))["pid"]
        eventually(lambda: not alive(first), "it is stopped")

        second = json_text(host.use("a", "stats"))["pid"]

        assert second != first
        assert json_text(host.use("b", "stats"))["pid"] == other, "which has no idleTimeout"
        assert host.stderr == "", "nobody has to know"


def test_a_server_with_a_call_under_way_is_used(tmp_path: Path, pids: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids, idleTimeout=IDLE)})) as host:
        host.initialize()
        held = host.begin_use("a", "hold", {"key": "x"})
        eventually(lambda: bool(pids_in(pids)), "it is started")
        watcher = {"b": noted(tmp_path / "others", idleTimeout=IDLE)}
        (tmp_path / "beside").mkdir()
        with PipeHost(
            config_file(tmp_path / "beside", watcher)
        ) as beside:  # an unused one, for the time
            beside.initialize()
            beside.use("b", "stats")
            [unused] = pids_in(tmp_path / "others")
            eventually(lambda: not alive(unused), "an unused one is stopped")

        host.begin_use("a", "release", {"key": "x"})

        assert json_text(host.answer(held)["result"]) == "released x"
        assert len(pids_in(pids)) == 1


def test_a_stopped_server_stays_in_the_list_and_is_not_started_for_it(
    tmp_path: Path, pids: Path
) -> None:
    file = config_file(tmp_path, {"a": noted(pids, idleTimeout=IDLE)}, toolMode="dynamic")
    with PipeHost(file) as host:
        host.initialize()
        host.open()
        listed = host.result("tools/list")
        [pid] = pids_in(pids)
        eventually(lambda: not alive(pid), "it is stopped")

        assert host.result("tools/list") == listed
        assert pids_in(pids) == [pid]


@pytest.mark.fault("F19")
def test_a_crashed_server_stays_in_the_list_and_a_change_is_announced_when_it_is_back(
    tmp_path: Path, pids: Path
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"name": "stats", "inputSchema": {}}]))
    file = config_file(tmp_path, {"a": noted(pids, f"tools={tools}")}, toolMode="dynamic")
    with PipeHost(file) as host:
        host.initialize()
        host.open()
        before = host.result("tools/list")["tools"]
        host.others.clear()
        [pid] = pids_in(pids)
        tools.write_text(json.dumps([{"name": n, "inputSchema": {}} for n in ("stats", "new")]))
        kill_server(pid)

        assert host.result("tools/list")["tools"] == before
        host.call("dev__a__stats")
        host.notice("notifications/tools/list_changed")

        after = [tool["name"] for tool in host.result("tools/list")["tools"]]
        assert after == [*(tool["name"] for tool in before), "dev__a__new"]


@pytest.mark.fault("F21")
def test_a_crash_loop_is_slowed_down_and_says_when_it_is_tried_again(
    tmp_path: Path, pids: Path
) -> None:
    with PipeHost(config_file(tmp_path, {"a": noted(pids, "exit_start"), "b": entry()})) as host:
        host.initialize()
        told: list[str] = []
        while not told or "next try" not in told[-1]:
            assert len(told) < 10, told
            told += texts(host.use("a", "echo"))
        starts = len(pids_in(pids))
        # Until then callers wait for the next try rather than being refused.
        assert starts <= next(n for n in range(2, 10) if pause_after(n, drawn=1.0) > PATIENCE)

        began = time.monotonic()
        for _ in range(100):
            [text] = texts(host.use("a", "echo"))
            assert f"it failed {len(pids_in(pids))} times in a row, next try in " in text
        tries = (time.monotonic() - began) / pause_after(starts, drawn=1.0)

        assert len(pids_in(pids)) <= starts + tries
        assert json_text(host.use("b", "echo"))["name"] == "echo"
        opened = host.open()
        assert "next try in" in opened["unavailable"][0]["reason"]
        lines = [line for line in host.stderr.splitlines() if "dev/a" in line]
    assert len(lines) <= 2, "one line for each change of state"
