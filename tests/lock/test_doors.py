"""The lock file decides the same for hosts over HTTP, for commands and for Python programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_workbench import ToolIdentifier, Workbench, load_config
from mcp_workbench.core.errors import WorkbenchError
from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import serving
from tests.kit.results import Message, error_code, open_toolbox, texts, use_tool
from tests.lock.scenes import ADD, ANNOUNCE, POISON, Scene

CHANGED: Message = {**ADD, "description": POISON}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A server whose tool `add` has changed since it was recorded."""
    scene = Scene(tmp_path, "pin")
    assert scene.run("lock").status == 0
    scene.define(tools=[CHANGED, ANNOUNCE])
    return scene


@pytest.mark.parametrize("modern", [False, True])
def test_a_host_over_http_sees_and_calls_no_blocked_tool(scene: Scene, *, modern: bool) -> None:
    with serving(scene.config, env=scene.home) as command:
        host = HttpHost(command.url, modern=modern)
        box = host.request("tools/call", open_toolbox("dev"))["result"]
        call = host.request("tools/call", use_tool("s", "add"))["result"]
        host.close()

    assert [tool["name"] for tool in json.loads(texts(box)[0])["tools"]] == ["announce"]
    assert error_code(call) == "quarantined"
    assert "id_rsa" not in json.dumps([box, call])


def test_commands_show_and_call_no_blocked_tool(scene: Scene) -> None:
    asked = scene.run("tools", "dev/s", "--json", "--refresh")
    cached = scene.run("tools", "dev/s", "--json")
    searched = scene.run("search", "adds numbers", "--json")
    called = scene.run("call", "dev/s/add", "a:=1", "b:=2", "--json")

    for done in (asked, cached, searched, called):
        assert "id_rsa" not in done.out + done.err
    assert "announce" in cached.out
    assert called.status == 1
    assert "quarantined" in called.err or "not found" in called.err


async def test_a_python_program_gets_an_error_with_the_code(scene: Scene) -> None:
    async with Workbench(load_config(scene.config), environ=scene.home) as workbench:
        box = await workbench.open_toolbox("dev")
        found = await workbench.search("adds numbers")
        with pytest.raises(WorkbenchError) as caught:
            await workbench.use_tool(ToolIdentifier("dev", "s", "add"), {"a": 1, "b": 2})

    assert [tool.name for tool in box.tools] == ["announce"]
    assert "id_rsa" not in repr(found)
    assert caught.value.code == "quarantined"
    assert "lock diff dev/s/add" in caught.value.hint
