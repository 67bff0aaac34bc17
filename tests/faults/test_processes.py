"""Servers that die, hang, or start badly: their own calls are told, nobody else notices."""

import asyncio
import json
import os
import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.errors import CallFailed
from mcp_workbench.gateway.workbench import Workbench
from tests.faults.scene import AT_ONCE, OTHER, failure, faulty, tried_in_time
from tests.kit.clock import PATIENCE, eventually, takes_at_most
from tests.kit.config import entry, snapshot, spec, tool
from tests.kit.processes import alive, kill_server, pids_in
from tests.kit.results import json_text

pytestmark = pytest.mark.usefixtures("forked_commands")


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def noted(pids: Path, *flags: str, **more: Any) -> dict[str, Any]:
    """An entry whose processes write their numbers into `pids`."""
    return entry(*flags, env={"PIDFILE": str(pids)}, **more)


def gate(folder: Path, name: str = "gate") -> Path:
    path = folder / name
    os.mkfifo(path)
    return path


def opened(fifo: Path) -> None:
    """Let the server go on that waits at this gate."""
    fifo.open("w").close()


# The end of a server


@pytest.mark.fault("F1")
def test_a_server_killed_under_load_loses_its_calls_at_once_and_is_back_at_once(
    tmp_path: Path, pids: Path
) -> None:
    with faulty(tmp_path, {"bad": noted(pids)}) as host:
        host.open()
        lost = [host.begin_use("bad", "hold", {"key": str(n)}) for n in range(20)]
        host.use("bad", "stats")  # it has read them all
        with takes_at_most(AT_ONCE):
            os.kill(pids_in(pids)[0], signal.SIGKILL)
            told = [failure(host.answer(id)["result"], "server_exited") for id in lost]

        assert all("SIGKILL" in text and text.endswith("may have run") for text in told)
        with takes_at_most(1):
            assert json_text(host.use("bad", "stats"))["pid"] == pids_in(pids)[1]


@pytest.mark.fault("F1", "F11")
def test_an_end_in_the_middle_of_an_answer_is_an_end(tmp_path: Path) -> None:
    words = {"half": "exit status 0", "die": "exit status 1"}
    with faulty(tmp_path, {tool: entry() for tool in words}) as host:
        host.open()
        for tool in words:
            with takes_at_most(AT_ONCE):
                text = failure(host.use(tool, tool), "server_exited")
            assert words[tool] in text
            assert text.endswith("may have run")
            assert json_text(host.use(tool, "echo"))["name"] == "echo"


@pytest.mark.fault("F2")
@pytest.mark.usefixtures("short_deadlines")  # they do not leave by themselves
def test_a_server_is_gone_whether_its_pipe_outlives_it_or_not(tmp_path: Path) -> None:
    ends = {"die": ("grandchild",), "close_stdout": ()}
    files = {tool: tmp_path / tool for tool in ends}
    servers = {tool: noted(files[tool], "floods", *flags) for tool, flags in ends.items()}
    with faulty(tmp_path, servers) as host:
        host.open()
        for tool, flags in ends.items():
            host.use(tool, "stats")
            group = pids_in(files[tool])
            with takes_at_most(1):
                failure(host.use(tool, tool), "server_exited")

            assert len(group) == 1 + len(flags)
            eventually(lambda group=group: not any(map(alive, group)), "the whole group is ended")


@pytest.mark.fault("F3")
def test_a_call_without_an_answer_ends_at_its_deadline_and_its_server_stays(
    tmp_path: Path, pids: Path
) -> None:
    with faulty(tmp_path, {"bad": noted(pids, timeout=1)}) as host:
        host.use("bad", "echo")
        number = json_text(host.use("bad", "stats"))["methods"].count("tools/call")
        since = time.monotonic()
        with takes_at_most(1.25):
            text = failure(host.use("bad", "hang"), "timeout")
        took = time.monotonic() - since

        seen = json_text(host.use("bad", "stats"))
        assert text == "[dev/bad/hang] Error: timed out after 1 s"
        assert took >= 1
        assert len(seen["cancelled"]) == 1, "and with its own number"
        assert number < seen["cancelled"][0] <= len(seen["methods"])
        assert pids_in(pids) == [seen["pid"]], "it was not restarted"


@pytest.mark.fault("F3")
async def test_a_server_that_does_not_answer_is_degraded_until_it_does() -> None:
    both = snapshot(spec("a", timeout=0.3), spec("b"))
    async with asyncio.timeout(PATIENCE), Workbench(both) as workbench:
        await workbench.open_toolbox("dev")
        for _ in range(2):
            with pytest.raises(CallFailed):
                await workbench.use_tool(tool("a", "hang"))
        degraded = {one.address.server: one for one in workbench.health()}
        while True:
            with suppress(CallFailed):  # its deadline is short, and the machine may be busy
                await workbench.use_tool(tool("a", "echo"))
                break
        mended = {one.address.server: one.state for one in workbench.health()}

    assert degraded["a"].state == "degraded"
    assert "its last 2 calls timed out" in degraded["a"].reason
    assert degraded["b"].state == "ready"
    assert mended == {"a": "ready", "b": "ready"}


# Starting


@pytest.mark.fault("F16")
def test_a_slow_start_holds_nobody_is_named_and_goes_on_without_its_opener(
    tmp_path: Path, pids: Path
) -> None:
    fifo = gate(tmp_path)
    slow = noted(pids, f"gate={fifo}")
    with faulty(tmp_path, {"slow": slow}, limits={"openWait": 1.2}) as host:
        leaver = host.begin("open_toolbox", {"toolbox_name": "dev"})
        with takes_at_most(1):
            assert len(host.result("tools/list")["tools"]) == 3
        host.notify("notifications/cancelled", {"requestId": leaver})

        value = host.open()
        [missing] = value["unavailable"]
        assert missing["server"] == "slow"
        assert missing["reason"] in [f"still starting ({n} s)" for n in range(1, 20)]
        assert value["servers_connected"] == 1

        waiting = host.begin_use("slow", "echo")
        opened(fifo)
        with takes_at_most(1):
            assert json_text(host.answer(waiting)["result"])["name"] == "echo"
        assert host.open()["servers_connected"] == 2
        assert len(pids_in(pids)) == 1


@pytest.mark.fault("F17")
def test_servers_that_fail_to_start_are_named_and_the_others_are_listed(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    servers = {
        "exits": entry("exit_start"),
        "complains": entry("stderr_exit"),
        "missing": {"command": "no-such-command-anywhere"},
        "plain": {"command": str(plain)},
        "homeless": entry(cwd=str(tmp_path / "nowhere")),
        "odd": entry("rev=1999-12-31"),
        "listless": entry("list_error"),
    }
    words = {
        "exits": "exit status 3",
        "complains": "no DATABASE_URL",
        "missing": "command not found",
        "plain": "not executable",
        "homeless": "nowhere does not exist",
        "odd": "1999-12-31",
        "listless": "no tools today",
    }
    with faulty(tmp_path, servers) as host:
        with takes_at_most(1):
            value = host.open()
        reasons = {one["server"]: one["reason"] for one in value["unavailable"]}

        assert value["servers_connected"] == 1
        assert {tool["source_server"] for tool in value["tools"]} == {OTHER}
        assert reasons.keys() == words.keys()
        for server, said_of_it in words.items():
            assert said_of_it in reasons[server]
            assert said_of_it in failure(host.use(server, "echo"), "connect_failed")


@pytest.mark.fault("F18")
def test_a_server_that_never_lists_its_tools_is_named_and_holds_nobody(tmp_path: Path) -> None:
    bad = entry("hang_list", connectTimeout=0.8)
    with faulty(tmp_path, {"bad": bad}, limits={"openWait": 0.3}) as host:
        with takes_at_most(0.3):
            value = host.open()
        assert [one["server"] for one in value["unavailable"]] == ["bad"]
        assert {tool["source_server"] for tool in value["tools"]} == {OTHER}
        with takes_at_most(0.8):
            text = failure(host.use("bad", "echo"), "connect_failed")
        assert "0.8 s (connectTimeout)" in text


@pytest.mark.fault("F18")
def test_a_list_that_is_not_read_again_leaves_the_last_good_one(tmp_path: Path) -> None:
    bad = entry("hang_list_again")
    with faulty(tmp_path, {"bad": bad}, toolMode="dynamic") as host:
        host.open()
        before = host.result("tools/list")["tools"]
        host.use("bad", "flip", {"name": "late"})  # announces a change
        eventually(lambda: json_text(host.use("bad", "stats"))["lists"] == 2, "it is asked again")

        with takes_at_most(1):
            assert host.result("tools/list")["tools"] == before
            assert json_text(host.use("bad", "echo"))["name"] == "echo"


@pytest.mark.fault("F19")
def test_a_server_that_is_back_is_listed_before_it_is_called(tmp_path: Path, pids: Path) -> None:
    tools, fifo = tmp_path / "tools.json", tmp_path / "list-gate"
    tools.write_text(json.dumps([{"name": "stats", "inputSchema": {}}]))
    bad = noted(pids, f"tools={tools}", f"list_gate={fifo}")
    with faulty(tmp_path, {"bad": bad}, toolMode="dynamic") as host:
        host.open()
        before = host.result("tools/list")["tools"]
        tools.write_text(json.dumps([{"name": n, "inputSchema": {}} for n in ("stats", "new")]))
        gate(tmp_path, "list-gate")
        [first] = pids_in(pids)
        kill_server(first)

        waiting = host.begin_use("bad", "new")
        eventually(lambda: len(pids_in(pids)) == 2, "it is started again")
        assert host.result("tools/list")["tools"] == before, "the last good list meanwhile"
        opened(fifo)
        assert json_text(host.answer(waiting)["result"])["name"] == "new"
        host.notice("notifications/tools/list_changed")
        after = [tool["name"] for tool in host.result("tools/list")["tools"]]
        assert "dev__bad__new" in after


@pytest.mark.fault("F20", "F21")
def test_a_crash_loop_is_slowed_down_named_and_over_as_soon_as_it_is(
    tmp_path: Path, pids: Path
) -> None:
    """The pauses themselves run on a made clock in upstream/test_backoff.py."""
    launcher = tmp_path / "launcher"
    launcher.write_text("#!/bin/sh\necho $$ >> pids\nexit 3\n")
    launcher.chmod(0o755)
    good = entry()
    bad = {"command": str(launcher), "cwd": str(tmp_path), "era": "legacy"}
    with faulty(tmp_path, {"bad": bad}) as host:
        told, since = "", time.monotonic()
        while "next try in" not in told:
            told = failure(host.use("bad", "echo"), "connect_failed")
        for _ in range(50):
            with takes_at_most(AT_ONCE):
                told = failure(host.use("bad", "echo"), "connect_failed")
            assert "next try in" in told
        tried_in_time(len(pids_in(pids)), told, time.monotonic() - since)
        assert len([line for line in host.stderr.splitlines() if "dev/bad" in line]) <= 2

        words = shlex.join(["exec", good["command"], *good["args"]])
        launcher.write_text(f"#!/bin/sh\n{words}\n")
        eventually(lambda: "isError" not in host.use("bad", "echo"), "it is back")
