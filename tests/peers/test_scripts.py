"""Scripts with the reference servers: what they return reaches a script as data, and each call is a real one."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from crew import crew, make_world
from rawpeer import running

from tests.kit.processes import MARK, assert_all_gone

pytestmark = pytest.mark.peers

SERVERS = ("filesystem", "git", "memory", "time")


@pytest.mark.parametrize("modern", [False, True])
async def test_one_script_uses_four_servers(workplace: Path, tmp_path: Path, modern: bool) -> None:
    pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed")
    world, mark = make_world(tmp_path), uuid.uuid4().hex
    everybody = crew(workplace, world)
    servers: dict[str, Any] = {
        name: {**everybody[name], "env": {**everybody[name].get("env", {}), MARK: mark}}
        for name in SERVERS
    }
    config = tmp_path / "workbench-config.json"
    config.write_text(json.dumps({"scripts": True, "toolboxes": {"ref": {"mcpServers": servers}}}))
    code = f"""
people = [{{"name": n, "entityType": "person", "observations": ["x"]}} for n in ("Ada", "Bob")]
await call("ref/memory/create_entities", entities=people)
note, log, graph, time = await asyncio.gather(
    call("ref/filesystem/read_text_file", path={str(world.files / "note.txt")!r}),
    call("ref/git/git_log", repo_path={str(world.repository)!r}),
    call("ref/memory/read_graph"),
    call("ref/time/convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
)
try:
    await call("ref/filesystem/read_text_file", path="/etc/hostname")
except RuntimeError as e:
    denied = "denied" in str(e).lower()
[
    "Grüße" in str(note),
    "The first commit" in str(log),
    sorted(e["name"] for e in graph["entities"]),
    time["target"]["datetime"][11:16],
    denied,
]
"""
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", config]
    async with running(command, tmp_path, modern=modern, env={MARK: mark}) as host:
        await host.open()
        result = await host.call("run_script", {"code": code})
        await host.leave()
    assert_all_gone(mark)

    assert "isError" not in result, result
    assert json.loads(result["content"][0]["text"]) == [True, True, ["Ada", "Bob"], "21:00", True]


async def test_a_script_asks_in_one_process_and_goes_on_in_another(
    workplace: Path, tmp_path: Path
) -> None:
    """The memory server adds what is observed: a call that is repeated would be seen in its file."""
    pytest.importorskip("pydantic_monty", reason="the extra 'code' is not installed")
    world, mark = make_world(tmp_path), uuid.uuid4().hex
    everybody = crew(workplace, world)
    servers: dict[str, Any] = {
        name: {**everybody[name], "env": {**everybody[name].get("env", {}), MARK: mark}}
        for name in ("memory", "time")
    }
    servers["time"]["approve"] = True
    config = tmp_path / "workbench-config.json"
    config.write_text(json.dumps({"scripts": True, "toolboxes": {"ref": {"mcpServers": servers}}}))
    code = """
await call("ref/memory/create_entities", entities=[{"name": "Ada", "entityType": "p", "observations": []}])
for word in ("first", "second"):
    when = await call("ref/time/convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
    note = {"entityName": "Ada", "contents": [word + " " + when["target"]["datetime"][11:16]]}
    await call("ref/memory/add_observations", observations=[note])
(await call("ref/memory/read_graph"))["entities"][0]["observations"]
"""
    params: dict[str, Any] = {"name": "run_script", "arguments": {"code": code}}
    params["_meta"] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    command = [sys.executable, "-m", "mcp_workbench", "serve", "--config", config]
    env = {MARK: mark, "MCP_WORKBENCH_HOME": str(tmp_path / "home")}
    answer: dict[str, Any] = {}
    for _ in range(2):
        async with running(command, tmp_path, modern=True, env=env) as host:
            asked = await host.ask("tools/call", {**params, **answer})
            # Leaving the block kills it.
        yes = {"action": "accept", "content": {"decision": "yes, once"}}
        given = dict.fromkeys(asked["inputRequests"], yes)
        answer = {"inputResponses": given, "requestState": asked["requestState"]}
    async with running(command, tmp_path, modern=True, env=env) as host:
        result = await host.ask("tools/call", {**params, **answer})
        await host.leave()

    assert "isError" not in result, result
    assert json.loads(result["content"][0]["text"]) == ["first 21:00", "second 21:00"]
