"""Hosts of the official SDK over both transports, hosts that share a workbench, and many scripts at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import mcp_types as types
import msgspec
import pytest

from mcp_workbench.core.spec import Snapshot
from tests.approvals.scenes import CAN, ONCE, says, with_answer
from tests.kit.clock import eventually
from tests.kit.config import demo_server, entry, snapshot, spec
from tests.kit.http_host import port
from tests.kit.results import MODERN, json_text, texts
from tests.kit.sdk_host import LEGACY_MODE, client
from tests.kit.shared import shared
from tests.scripts.scenes import failure, recorded, script, scripted, value

CODE = "r = await call('dev/a/echo', text='x')\nr['arguments']"


def with_scripts(made: Snapshot) -> Snapshot:
    boxes = {
        name: msgspec.structs.replace(box, scripts=True) for name, box in made.toolboxes.items()
    }
    return msgspec.structs.replace(made, toolboxes=boxes)


@pytest.mark.parametrize("mode", [LEGACY_MODE, MODERN])
async def test_the_person_of_an_sdk_host_approves_over_http(mode: str) -> None:
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": ONCE})

    async with port(with_scripts(snapshot(spec("a", approve=("echo",))))) as opened:
        url = f"http://{opened.name}/mcp"
        async with client(url, mode=mode, elicitation_callback=elicit) as session:
            result = await session.call_tool("run_script", {"code": f"{CODE}\n{CODE}"})

    block = result.content[0]
    assert isinstance(block, types.TextContent)
    assert block.text == '{"text":"x"}'
    assert len(asked) == 2
    assert all('"echo" of the server dev/a' in message for message in asked)


async def test_the_answer_of_another_principal_does_not_wake_a_script() -> None:
    params = {"name": "run_script", "arguments": {"code": CODE}, "_meta": CAN}
    async with port(with_scripts(snapshot(spec("a", approve=("echo",))))) as opened:
        question = (await opened.ask_modern("tools/call", params)).result
        yes = with_answer(question, says(ONCE))
        changed = {**params, "arguments": {"code": f"{CODE} "}}
        other = await opened.ask_modern("tools/call", {**changed, **yes})
        result = (await opened.ask_modern("tools/call", {**params, **yes})).result
        again = await opened.ask_modern("tools/call", {**params, **yes})

    assert question["resultType"] == "input_required"
    assert "requestState" in str(other.message["error"])
    assert json_text(result) == {"text": "x"}
    assert "error" in again.message, "an answer counts once"


def test_a_host_that_shares_a_workbench_runs_scripts_there(tmp_path: Path) -> None:
    with shared(scripted(tmp_path)) as bench, bench.host() as host, bench.host() as other:
        host.handshake()
        other.handshake()
        both = [value(script(one, CODE)) for one in (host, other)]
        connections = bench.server("a")["connections"]

    assert both == [{"text": "x"}] * 2
    assert connections == 1
    assert {line["door"] for line in recorded(tmp_path)} == {"daemon"}


def test_a_script_is_not_run_again_when_the_shared_workbench_is_killed(tmp_path: Path) -> None:
    """Its last call only reads, and would be repeated if the host itself had made it."""
    servers = {"a": entry(), "basics": demo_server()}
    with shared(scripted(tmp_path, servers)) as bench, bench.host() as host:
        host.handshake()
        code = "await call('dev/a/slow', seconds=0)\nawait call('dev/basics/echo', text='x')\ntime.sleep(9)"
        id = host.begin("run_script", {"code": f"import time\n{code}"})
        eventually(lambda: len(recorded(tmp_path)) == 2, "both calls were made")
        os.kill(bench.pid, signal.SIGKILL)
        result = host.answer(id)["result"]
        after = value(script(host, CODE))

    assert result["isError"] is True
    assert "may have run" in texts(result)[0]
    assert after == {"text": "x"}
    assert [line["tool"] for line in recorded(tmp_path)] == ["slow", "echo", "echo"]


def test_sixty_four_scripts_at_once(tmp_path: Path) -> None:
    from tests.kit.pipe_host import PipeHost

    with PipeHost(scripted(tmp_path)) as host:
        host.handshake()
        value(script(host, "1"))
        code = "r = await call('dev/a/echo', text='{}')\nr['arguments']['text'] + '!'"
        ids = [host.begin("run_script", {"code": code.format(n)}) for n in range(64)]
        shown = [texts(host.answer(id)["result"])[0] for id in ids]

    assert shown == [f"{n}!" for n in range(64)]
    assert len({line["parent"] for line in recorded(tmp_path)}) == 64


def test_a_tool_that_fails_within_a_shared_workbench_says_the_same(tmp_path: Path) -> None:
    with shared(scripted(tmp_path)) as bench, bench.host() as host:
        host.handshake()
        told = failure(script(host, "await call('dev/a/ecko', text='x')"))

    assert "Did you mean 'echo'?" in told
