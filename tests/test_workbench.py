"""The contract's section "For Python"."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import mcp_workbench
from mcp_workbench import (
    OpenToolboxInput,
    OpenToolboxResult,
    ToolIdentifier,
    ToolInfo,
    UseToolInput,
    Workbench,
    WorkbenchError,
    load_config,
)
from mcp_workbench.core.errors import CallFailed, NotFound, ServerError, ServerUnavailable
from mcp_workbench.core.spec import Limits, tool_filter
from mcp_workbench.upstream.connection import REFRESH_PAUSE
from tests.kit.clock import until
from tests.kit.config import config_file, entry, snapshot, spec, tool
from tests.kit.processes import gone, pids_in, unmeasured
from tests.kit.results import json_text

LIMIT = 20.0


async def test_the_example_of_the_contract_runs(tmp_path: Path) -> None:
    path = config_file(tmp_path, {"odd": entry()})

    async with asyncio.timeout(LIMIT), Workbench(load_config(path)) as wb:
        opened = await wb.open_toolbox("dev")
        result = await wb.use_tool(ToolIdentifier("dev", "odd", "echo"), {"text": "hi"})

    assert isinstance(opened, OpenToolboxResult)
    assert (opened.toolbox, opened.description) == ("dev", "Development toolbox")
    assert (opened.servers_connected, opened.unavailable) == (1, ())
    assert json_text(result) == {"name": "echo", "arguments": {"text": "hi"}}


async def test_a_tool_info_has_the_contract_s_fields() -> None:
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("odd"))) as wb:
        [echo] = [info for info in (await wb.open_toolbox("dev")).tools if info.name == "echo"]

    assert isinstance(echo, ToolInfo)
    assert (echo.toolbox_name, echo.source_server) == ("dev", "odd")
    assert echo.description == "Say it again"
    assert echo.input_schema["properties"]["text"]["maxLength"] == 12345678901234567890
    assert echo.definition["x-unknown"] == [1.0, 100.0, None]
    assert "toolbox_name" not in echo.definition


async def test_nothing_has_to_be_opened_first() -> None:
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        assert json_text(await wb.use_tool(tool("a", "echo")))["arguments"] == {}


@pytest.mark.parametrize("field", ["toolbox", "server", "tool"])
async def test_an_empty_component_is_a_value_error_with_the_contract_s_text(field: str) -> None:
    parts = {"toolbox": "dev", "server": "a", "tool": "echo", field: ""}

    async with Workbench(snapshot(spec("a"))) as wb:
        with pytest.raises(ValueError, match=f"^Invalid tool identifier: {field} cannot be empty$"):
            await wb.use_tool(ToolIdentifier(**parts))


@pytest.mark.parametrize(
    ("identifier", "text"),
    [
        (tool("a", "x", "bax"), "Toolbox 'bax' not found"),
        (tool("zz", "x"), "Server 'zz' not found in toolbox 'dev'"),
        (tool("a", "x"), "Tool 'x' not found in server 'a' (toolbox 'dev')"),
        (tool("a", "die"), "Tool 'die' not found in server 'a' (toolbox 'dev')"),
    ],
)
async def test_what_does_not_exist_raises_with_the_contract_s_text(
    identifier: ToolIdentifier, text: str
) -> None:
    filtered = spec("a", tools=tool_filter(("!die",)))
    async with asyncio.timeout(LIMIT), Workbench(snapshot(filtered)) as wb:
        with pytest.raises(NotFound) as caught:
            await wb.use_tool(identifier)

    assert isinstance(caught.value, WorkbenchError)
    assert str(caught.value) == text
    assert "'die'" not in caught.value.hint


async def test_a_failed_connection_raises_with_the_reason() -> None:
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a", "stderr_exit"))) as wb:
        with pytest.raises(ServerUnavailable) as caught:
            await wb.use_tool(tool("a", "echo"))
        with pytest.raises(ServerUnavailable) as opening:
            await wb.open_toolbox("dev")

    start = "Failed to connect to server 'a' in toolbox 'dev': "
    assert str(caught.value).startswith(start)
    assert str(opening.value).startswith(start)
    assert "DATABASE_URL" in str(caught.value)
    assert caught.value.code == "connect_failed"


async def test_a_server_s_error_raises_with_code_message_and_data() -> None:
    error = '{"code":-31999,"message":"odd","data":{"n":1}}'
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        with pytest.raises(ServerError, match=r"^odd$") as caught:
            await wb.use_tool(tool("a", "error"), {"error": error})

    assert caught.value.number == -31999
    assert json.loads(caught.value.error) == json.loads(error)


async def test_a_tool_s_own_error_result_is_returned() -> None:
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        assert (await wb.use_tool(tool("a", "fail")))["isError"] is True


@pytest.mark.parametrize("result", ["[]", "5", "null"])
async def test_a_result_that_is_no_object_raises(result: str) -> None:
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        with pytest.raises(CallFailed, match="no usable form"):
            await wb.use_tool(tool("a", "result"), {"result": result})


async def test_the_end_of_the_server_and_the_end_of_time_raise_with_the_tool_in_front() -> None:
    servers = spec("a"), spec("b", timeout=0.1)
    async with asyncio.timeout(LIMIT), Workbench(snapshot(*servers)) as wb:
        with pytest.raises(CallFailed, match=r"^\[dev/a/die\] Error: the server exited") as died:
            await wb.use_tool(tool("a", "die"))
        with pytest.raises(
            CallFailed, match=r"^\[dev/b/hang\] Error: timed out after 0.1 s"
        ) as late:
            await wb.use_tool(tool("b", "hang"))

    assert (died.value.code, late.value.code) == ("server_exited", "timeout")
    assert died.value.may_have_run


async def test_progress_is_told_in_order() -> None:
    told: list[dict[str, Any]] = []
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        await wb.use_tool(tool("a", "progress"), {"n": 5}, on_progress=told.append)

    assert [notice["progress"] for notice in told] == list(range(5))
    assert all("progressToken" not in notice for notice in told)


async def test_many_calls_of_many_servers_are_told_apart() -> None:
    names = [f"s{index}" for index in range(4)]
    async with asyncio.timeout(LIMIT), Workbench(snapshot(*map(spec, names))) as wb:

        async def ask(server: str, nonce: int) -> bool:
            result = await wb.use_tool(tool(server, "echo"), {"nonce": [server, nonce]})
            return json_text(result)["arguments"] == {"nonce": [server, nonce]}

        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(ask(names[n % 4], n)) for n in range(200)]

    assert all(call.result() for call in calls)


@pytest.mark.fault("F37")
async def test_concurrent_openings_and_calls_share_one_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    one = spec("a", env={"PIDFILE": str(pids)})
    async with (
        asyncio.timeout(LIMIT),
        Workbench(snapshot(one)) as wb,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(10):
            group.create_task(wb.open_toolbox("dev"))
            group.create_task(wb.use_tool(tool("a", "echo")))

    assert len(pids_in(pids)) == 1
    assert gone(pids_in(pids))


async def test_a_cancelled_caller_does_not_take_the_connection_with_it() -> None:
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        impatient = asyncio.ensure_future(wb.use_tool(tool("a", "hang")))
        patient = asyncio.ensure_future(wb.use_tool(tool("a", "echo"), {"text": "here"}))
        await patient

        impatient.cancel()
        await asyncio.wait([impatient])
        stats = json_text(await wb.use_tool(tool("a", "stats")))

    assert impatient.cancelled()
    assert len(stats["cancelled"]) == 1


@pytest.mark.fault("F16")
async def test_an_opener_that_leaves_does_not_stop_the_start(tmp_path: Path) -> None:
    gate, pids = tmp_path / "gate", tmp_path / "pids"
    os.mkfifo(gate)
    slow = spec("a", f"gate={gate}", env={"PIDFILE": str(pids)})
    async with asyncio.timeout(LIMIT), Workbench(snapshot(slow)) as wb:
        opening = asyncio.ensure_future(wb.open_toolbox("dev"))
        await until(lambda: bool(pids_in(pids)))
        opening.cancel()
        await asyncio.wait([opening])
        await asyncio.to_thread(lambda: gate.open("w").close())

        assert (await wb.open_toolbox("dev")).servers_connected == 1
    assert len(pids_in(pids)) == 1


async def test_a_slow_server_is_named_and_the_others_are_opened(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    limits = Limits(open_wait=0.2)
    both = snapshot(spec("slow", f"gate={gate}"), spec("quick"), limits=limits)
    async with asyncio.timeout(LIMIT), Workbench(both) as wb:
        await wb.use_tool(tool("quick", "echo"))
        opened = await wb.open_toolbox("dev")
        await asyncio.to_thread(lambda: gate.open("w").close())

    [missing] = opened.unavailable
    assert (opened.servers_connected, missing.server) == (1, "slow")
    assert "still starting" in missing.reason


async def test_a_new_tool_is_found_by_its_first_call() -> None:
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        await wb.use_tool(tool("a", "flip"), {"name": "extra"})

        assert json_text(await wb.use_tool(tool("a", "extra")))["name"] == "extra"


async def test_listeners_hear_which_server_has_changed() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"), spec("b"))) as wb:
        wb.on_change(lambda address: heard.put_nowait(str(address)))
        await wb.open_toolbox("dev")
        await wb.use_tool(tool("b", "flip"), {"name": "extra"})

        assert await heard.get() == "dev/b"


@pytest.mark.fault("F15")
async def test_a_server_that_keeps_changing_is_read_once_a_second() -> None:
    times: list[float] = []
    heard = asyncio.Event()

    def changed(address: object) -> None:
        times.append(time.monotonic())
        heard.set()

    async with asyncio.timeout(LIMIT), Workbench(snapshot(spec("a"))) as wb:
        wb.on_change(changed)
        for name in ("one", "two"):
            heard.clear()
            await wb.use_tool(tool("a", "flip"), {"name": name})
            await heard.wait()

    assert len(times) == 2
    assert times[1] - times[0] > 0.9 * REFRESH_PAUSE


async def test_without_async_with_the_error_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Workbench(snapshot(spec("a"))).use_tool(tool("a", "echo"))


async def test_a_survey_reports_what_there_is_and_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "tools").write_text('[{"name":"a"},{"name":"b"},{"name":"secret"},5]')
    shown = tool_filter(("*", "!secret", "!nothing"))
    good = spec("good", f"tools={tmp_path / 'tools'}", tools=shown)
    both = snapshot(good, spec("bad", "stderr_exit"))
    async with asyncio.timeout(LIMIT), Workbench(both) as wb:
        fine, broken = [
            await wb.survey(one.address) for one in both.toolboxes["dev"].servers.values()
        ]

    assert (fine.reason, fine.revision, fine.server_name) == ("", "2025-11-25", "fixture")
    assert [info.name for info in fine.tools] == ["a", "b"]
    assert (fine.hidden, fine.idle_filters, len(fine.complaints)) == (1, ("!nothing",), 1)
    assert "DATABASE_URL" in broken.reason
    assert broken.tools == ()


def test_the_inputs_are_typed_values() -> None:
    wish = UseToolInput(ToolIdentifier("a", "b", "c"))

    assert wish.arguments == {}
    assert wish == UseToolInput(tool=ToolIdentifier("a", "b", "c"), arguments={})
    assert OpenToolboxInput("dev").toolbox_name == "dev"
    with pytest.raises(AttributeError):
        wish.arguments = {"x": 1}  # pyright: ignore[reportAttributeAccessIssue]


def test_every_public_name_is_there_and_documented() -> None:
    promised = {
        "ToolIdentifier", "ToolInfo", "OpenToolboxResult", "UseToolInput", "OpenToolboxInput",
        "Workbench", "load_config", "generate_tool_name", "parse_tool_name",
    }  # fmt: skip

    assert promised <= set(mcp_workbench.__all__) == set(dir(mcp_workbench))
    for name in promised:
        assert getattr(mcp_workbench, name).__doc__
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mcp_workbench.no_such_name  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def test_importing_us_loads_nothing_else_and_names_come_on_first_use() -> None:
    code = (
        "import sys; before = set(sys.modules); import mcp_workbench; "
        "extra = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "assert not any(m in sys.modules for m in ('asyncio', 'msgspec', 'json')), extra; "
        "mcp_workbench.ToolIdentifier('a', 'b', 'c'); "
        "assert not any(m in sys.modules for m in ('asyncio', 'subprocess', 'json', 'click', 'mcp'))"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT, env=unmeasured())
