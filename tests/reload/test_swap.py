"""One configuration takes another's place: real processes, counted."""

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench import Workbench, WorkbenchError
from mcp_workbench.core.spec import Limits, ServerAddress, ServerSpec, tool_filter
from mcp_workbench.gateway.reload import ReloadPlan
from tests.kit.clock import PATIENCE, until
from tests.kit.config import snapshot, spec, tool
from tests.kit.inside import InsideWorkbench
from tests.kit.processes import alive, let_through, pids_in
from tests.kit.results import json_text

replace = msgspec.structs.replace
A, B = ServerAddress("dev", "a"), ServerAddress("dev", "b")


def counted(folder: Path, name: str, *flags: str, **more: Any) -> ServerSpec:
    """A server whose processes write their numbers into a file of its name."""
    env = {"PIDFILE": str(folder / name), **more.pop("env", {})}
    return spec(name, *flags, env=env, **more)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Where a call waits until the test opens it."""
    made = tmp_path / "gate"
    os.mkfifo(made)
    return made


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is told to leave is killed in the same moment."""
    monkeypatch.setattr("mcp_workbench.transport.process.POLITE", 0.0)
    monkeypatch.setattr("mcp_workbench.transport.process.FIRM", 0.0)


async def pid_of(wb: Workbench, server: str) -> int:
    return json_text(await wb.use_tool(tool(server, "stats")))["pid"]


@pytest.mark.fault("F56")
async def test_only_what_changed_is_connected_anew(tmp_path: Path) -> None:
    a, b = counted(tmp_path, "a"), counted(tmp_path, "b")
    async with asyncio.timeout(PATIENCE), Workbench(snapshot(a, b)) as wb:
        first, other = await pid_of(wb, "a"), await pid_of(wb, "b")

        change = wb.reload(snapshot(a, counted(tmp_path, "b", env={"MORE": "1"})))

        assert change.plan == ReloadPlan(kept=(A,), changed=(B,))
        assert await pid_of(wb, "a") == first
        assert await pid_of(wb, "b") != other
        await until(lambda: not alive(other))

    assert (len(pids_in(tmp_path / "a")), len(pids_in(tmp_path / "b"))) == (1, 2)


async def test_a_changed_server_is_begun_when_it_is_needed_and_not_before(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE), Workbench(snapshot(counted(tmp_path, "a"))) as wb:
        first = await pid_of(wb, "a")

        wb.reload(snapshot(counted(tmp_path, "a", "paged")))
        await until(lambda: not alive(first))

        assert pids_in(tmp_path / "a") == [first]
        assert await pid_of(wb, "a") != first


@pytest.mark.fault("F56")
@pytest.mark.usefixtures("no_grace")
async def test_calls_under_way_finish_where_they_began(tmp_path: Path, gate: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(counted(tmp_path, "a"))) as wb,
        asyncio.TaskGroup() as group,
    ):
        first = await pid_of(wb, "a")
        slow = group.create_task(wb.use_tool(tool("a", "slow"), {"gate": str(gate)}))
        await asyncio.sleep(0)

        wb.reload(snapshot(counted(tmp_path, "a", "paged")))

        assert await pid_of(wb, "a") != first
        assert alive(first)
        await until(lambda: let_through(gate))
        assert json_text(await slow)["pid"] == first
        await until(lambda: not alive(first))


async def test_what_a_replaced_server_lists_late_is_not_remembered(
    tmp_path: Path, gate: Path
) -> None:
    list_gate = tmp_path / "list"
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(snapshot(counted(tmp_path, "a", f"list_gate={list_gate}"))) as wb,
        asyncio.TaskGroup() as group,
    ):
        pool = wb.gateway.pool
        first = await pid_of(wb, "a")
        before = pool.live(A)
        slow = group.create_task(wb.use_tool(tool("a", "slow"), {"gate": str(gate)}))
        os.mkfifo(list_gate)
        await wb.use_tool(tool("a", "flip"), {"name": "late"})

        wb.reload(snapshot(counted(tmp_path, "a", "paged")))

        assert await pid_of(wb, "a") != first
        await until(lambda: let_through(list_gate))
        assert before is not None
        await until(lambda: "late" in before.catalogue.names)
        now = pool.live(A)
        assert now is not None
        held = pool.cache.held(now.spec)
        assert held is not None
        assert "late" not in held.catalogue.names
        await until(lambda: let_through(gate))
        await slow


@pytest.mark.usefixtures("no_grace")
async def test_calls_of_a_removed_server_finish_and_new_ones_are_told(
    tmp_path: Path, gate: Path
) -> None:
    a, b = counted(tmp_path, "a"), counted(tmp_path, "b")
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(a, b)) as wb,
        asyncio.TaskGroup() as group,
    ):
        first = await pid_of(wb, "a")
        slow = group.create_task(wb.use_tool(tool("a", "slow"), {"gate": str(gate)}))
        await asyncio.sleep(0)

        wb.reload(snapshot(b))

        with pytest.raises(WorkbenchError, match=r"Server 'a' not found in toolbox 'dev'"):
            await wb.use_tool(tool("a", "echo"))
        await pid_of(wb, "b")
        assert alive(first)
        await until(lambda: let_through(gate))
        assert json_text(await slow)["pid"] == first
        await until(lambda: not alive(first))


@pytest.mark.fault("F56")
async def test_a_call_that_never_ends_does_not_keep_a_retired_server_for_ever(
    tmp_path: Path,
) -> None:
    hurried = Limits(drain=0.3)
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(counted(tmp_path, "a"))) as wb,
        asyncio.TaskGroup() as group,
    ):
        first = await pid_of(wb, "a")
        hanging = group.create_task(_error_of(wb.use_tool(tool("a", "hang"))))
        await asyncio.sleep(0)

        wb.reload(snapshot(counted(tmp_path, "a", "paged"), limits=hurried))
        error = await hanging

        assert str(error) == (
            "[dev/a/hang] Error: its entry in the configuration has changed; the call may have run"
        )
        assert error.may_have_run
        await until(lambda: not alive(first))


async def _error_of(call: Any) -> WorkbenchError:
    with pytest.raises(WorkbenchError) as raised:
        await call
    return raised.value


async def test_whoever_waits_for_a_server_that_never_starts_gets_its_successor(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(counted(tmp_path, "a", "hang"))) as wb,
        asyncio.TaskGroup() as group,
    ):
        call = group.create_task(wb.use_tool(tool("a", "stats")))
        opening = group.create_task(wb.open_toolbox("dev"))
        await until(lambda: len(pids_in(tmp_path / "a")) == 1)

        wb.reload(snapshot(counted(tmp_path, "a")))

        stuck, well = pids_in(tmp_path / "a")[0], json_text(await call)["pid"]
        opened = await opening
        assert (opened.servers_connected, opened.unavailable) == (1, ())
        assert pids_in(tmp_path / "a") == [stuck, well]
        await until(lambda: not alive(stuck))


async def test_whoever_waits_for_a_server_that_is_removed_is_told(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(counted(tmp_path, "a", "hang"), spec("b"))) as wb,
        asyncio.TaskGroup() as group,
    ):
        call = group.create_task(_error_of(wb.use_tool(tool("a", "stats"))))
        opening = group.create_task(wb.open_toolbox("dev"))
        await until(lambda: len(pids_in(tmp_path / "a")) == 1)

        wb.reload(snapshot(spec("b")))

        assert str(await call) == "Server 'a' not found in toolbox 'dev'"
        assert (await opening).unavailable == ()


async def test_a_reload_before_a_process_was_started_starts_none(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Workbench(snapshot(counted(tmp_path, "a"), counted(tmp_path, "b"))) as wb,
        asyncio.TaskGroup() as group,
    ):
        call = group.create_task(_error_of(wb.use_tool(tool("a", "stats"))))
        await asyncio.sleep(0)  # the connection is begun, and its task has not run

        wb.reload(snapshot(counted(tmp_path, "b")))

        assert str(await call) == "Server 'a' not found in toolbox 'dev'"
        await pid_of(wb, "b")

    assert pids_in(tmp_path / "a") == []


async def test_filters_and_times_hold_from_the_next_call_on(tmp_path: Path) -> None:
    a = counted(tmp_path, "a")
    async with asyncio.timeout(PATIENCE), Workbench(snapshot(a)) as wb:
        await wb.use_tool(tool("a", "echo"))

        wb.reload(snapshot(replace(a, tools=tool_filter(("stats", "hang")), timeout=0.2)))

        with pytest.raises(WorkbenchError, match=r"Tool 'echo' not found"):
            await wb.use_tool(tool("a", "echo"))
        with pytest.raises(WorkbenchError, match=r"timed out after 0\.2 s"):
            await wb.use_tool(tool("a", "hang"))
        opened = await wb.open_toolbox("dev")
        assert sorted(info.name for info in opened.tools) == ["hang", "stats"]

    assert len(pids_in(tmp_path / "a")) == 1


async def test_a_variable_with_another_value_is_a_change(tmp_path: Path) -> None:
    environ = {"WORD": "one", "PATH": "/usr/bin:/bin"}
    a = counted(tmp_path, "a", env={"SAID": "${WORD}"})
    b = counted(tmp_path, "b")
    async with asyncio.timeout(PATIENCE), Workbench(snapshot(a, b), environ=environ) as wb:
        first, other = await pid_of(wb, "a"), await pid_of(wb, "b")
        assert wb.reload(snapshot(a, b)).plan.changed == ()

        environ["WORD"] = "two"
        assert wb.reload(snapshot(a, b)).plan.changed == (A,)

        assert json_text(await wb.use_tool(tool("a", "env")))["env"]["SAID"] == "two"
        assert await pid_of(wb, "a") != first
        assert await pid_of(wb, "b") == other


async def test_a_server_that_has_died_and_changed_is_begun_as_it_is_now(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE), Workbench(snapshot(counted(tmp_path, "a"))) as wb:
        first = await pid_of(wb, "a")
        with pytest.raises(WorkbenchError):
            await wb.use_tool(tool("a", "die"))
        await until(lambda: not alive(first))

        wb.reload(snapshot(counted(tmp_path, "a", env={"NOW": "1"})))

        assert json_text(await wb.use_tool(tool("a", "env")))["env"]["NOW"] == "1"


async def test_a_configuration_may_be_exchanged_before_anything_is_open() -> None:
    workbench = Workbench(snapshot(spec("a")))
    workbench.reload(snapshot(spec("b")))
    async with asyncio.timeout(PATIENCE), workbench as wb:
        assert (await wb.open_toolbox("dev")).tools[0].source_server == "b"


async def test_views_and_limits_follow() -> None:
    before = snapshot(spec("a"), spec("b", toolbox="ops"))
    async with asyncio.timeout(PATIENCE), InsideWorkbench(before) as wb:
        ops = wb.view.narrowed("ops".__eq__)

        wb.reload(snapshot(spec("a"), limits=Limits(open_wait=1.5)))
        assert (ops.snapshot.toolboxes, ops.snapshot.limits.open_wait) == ({}, 1.5)
        with pytest.raises(WorkbenchError, match=r"^Toolbox 'ops' not found$"):
            await ops.open("ops")

        wb.reload(before)
        assert (await ops.open("ops")).connected == 1


async def test_a_warning_stands_in_every_opened_toolbox_until_a_reload() -> None:
    async with asyncio.timeout(PATIENCE), InsideWorkbench(snapshot(spec("a"))) as wb:
        wb.gateway.warn("the file is broken")
        for _ in range(2):
            assert (await wb.open_toolbox("dev")).warnings == ("the file is broken",)

        wb.reload(snapshot(spec("a")))
        assert (await wb.open_toolbox("dev")).warnings == ()


async def test_fifty_reloads_in_a_row_leave_one_process(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE), Workbench(snapshot(counted(tmp_path, "a"))) as wb:
        for number in range(50):
            wb.reload(snapshot(counted(tmp_path, "a", env={"N": str(number)})))
            if number % 10 == 0:
                assert json_text(await wb.use_tool(tool("a", "env")))["env"]["N"] == str(number)
        last = await pid_of(wb, "a")
        await until(lambda: [pid for pid in pids_in(tmp_path / "a") if alive(pid)] == [last])
