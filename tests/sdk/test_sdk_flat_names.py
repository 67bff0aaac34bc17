"""Hosts and servers of the official SDK in dynamic mode: tools under their flat names."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import anyio
import pytest
from mcp.client.client import Client
from mcp_types import CallToolResult

from tests.kit.sdk_host import (
    ERA,
    LEGACY_MODE,
    MODES,
    NEW,
    OLD,
    Notices,
    both_eras,
    by_flat_name,
    by_identifier,
    plain,
    sdk_host,
    taken_back,
    text,
)

pytestmark = pytest.mark.usefixtures("forked_commands")

META_TOOLS = ["open_toolbox", "use_tool"]

both = pytest.mark.parametrize("server", [OLD, NEW])


class Opening(NamedTuple):
    """The names that were listed before and after it, what it answered, and the notices until then."""

    before: list[str]
    after: list[str]
    tools: list[dict[str, Any]]
    notices: list[str]


class Host(Notices):
    """A host, and the notices that reached it: `opening` is how its toolbox was opened."""

    client: Client
    opening: Opening

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, server: str, tool: str, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(*by_flat_name(server, tool, arguments))

    async def open(self) -> None:
        before = await self.names()
        answer = text(await self.client.call_tool("open_toolbox", {"toolbox_name": "lab"}))
        after = await self.names()
        self.opening = Opening(before, after, json.loads(answer)["tools"], list(self.methods))


@pytest.fixture(scope="module", params=MODES)
async def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Host]:
    """One that has opened its toolbox."""
    host = Host()
    folder = tmp_path_factory.mktemp("bench")
    bench = sdk_host(folder, both_eras(), mode=request.param, tools="dynamic", heard=host.hear)
    async with bench as host.client:
        await host.open()
        yield host


async def test_a_legacy_host_sees_tools_once_opened_and_a_modern_one_from_the_start(
    host: Host,
) -> None:
    before, after, tools, notices = host.opening

    flat = [tool["name"] for tool in tools]
    assert flat[0] == "lab__old__echo"
    assert len(flat) == 26
    assert tools[-1] == {
        "name": "lab__new__crash",
        "toolbox_name": "lab",
        "source_server": "new",
    }
    if host.client.mode == LEGACY_MODE:
        assert before == META_TOOLS
        assert after == META_TOOLS + flat
        assert notices == ["notifications/tools/list_changed"]
    else:
        assert before == after == ["open_toolbox", *flat]
        assert notices == []


@both
async def test_a_definition_is_the_servers_own_with_its_origin_added(
    host: Host, server: str
) -> None:
    tools = {tool.name: tool for tool in (await host.client.list_tools()).tools}

    rich = plain(tools[f"lab__{server}__add"])
    assert rich["title"] == "Addition ∑"
    assert rich["description"] == f"[lab/{server}] Adds two numbers."
    assert rich["inputSchema"]["x-vendor"] == {"kept": [None, 1, 2.5]}
    assert rich["outputSchema"]["required"] == ["sum"]
    assert rich["annotations"]["readOnlyHint"] is True
    assert rich["icons"][0]["src"] == "https://example.com/add.png"
    assert rich["_meta"] == {
        "example.com/shelf": {"row": 3},
        "source_server": server,
        "toolbox_name": "lab",
        "original_name": "add",
        "anthropic/searchHint": f"lab {server}",
    }


@both
async def test_a_call_by_flat_name_reaches_its_server_in_the_servers_era(
    host: Host, server: str
) -> None:
    answer = await host.call(server, "about_the_call")

    assert answer.structured_content is not None
    assert answer.structured_content["era"] == ERA[server]


@both
async def test_structured_content_passes_the_hosts_own_check(host: Host, server: str) -> None:
    answer = await host.call(server, "add", a=2)

    assert answer.structured_content == {"sum": 3.0, "unit": None}
    assert plain(answer)["_meta"] == {"example.com/took": 0.5}


@both
async def test_an_error_of_the_server_becomes_words_for_the_model(host: Host, server: str) -> None:
    answer = await host.call(server, "refuse", code=-31999)

    assert answer.is_error
    assert text(answer) == f"[lab/{server}/refuse] Error: not today"


@both
async def test_an_unknown_tool_is_told_in_words(host: Host, server: str) -> None:
    answer = await host.call(server, "ecco")

    assert answer.is_error
    assert plain(answer)["content"][0]["text"] == (
        f"[lab/{server}/ecco] Error: Tool 'ecco' not found in server '{server}' (toolbox 'lab')"
    )


async def test_the_old_form_of_a_name_is_explained(host: Host) -> None:
    answer = await host.client.call_tool("lab__old_echo", {"text": "hello"})

    assert answer.is_error
    assert plain(answer)["content"][0]["text"] == (
        "Error: Invalid tool name format 'lab__old_echo'. Expected format: "
        "{toolbox}__{server}__{tool} (note: double underscores between all components)"
    )


@both
async def test_progress_comes_in_order(host: Host, server: str) -> None:
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    name, arguments = by_flat_name(server, "count", {"steps": 50})
    await host.client.call_tool(name, arguments, progress_callback=note)

    assert seen == [*range(1, 51)]


@both
async def test_a_call_taken_back_is_taken_back_at_the_server(host: Host, server: str) -> None:
    key = f"{host.client.mode} {server}"
    name, arguments = by_flat_name(server, "wait", {"key": key})

    await taken_back(host.client, name, arguments)

    assert text(await host.call(server, "was_cancelled", key=key)) == "yes"


@both
async def test_fifty_calls_at_once_each_get_their_own_answer(host: Host, server: str) -> None:
    answers: dict[int, str] = {}

    async def ask(number: int) -> None:
        answers[number] = text(await host.call(server, "echo", text=f"number {number}"))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(ask, number)

    assert answers == {number: f"number {number}" for number in range(50)}


@both
async def test_use_tool_works_here_too(host: Host, server: str) -> None:
    """Some legacy hosts never read the list again, and a modern model may remember the other mode."""
    answer = await host.client.call_tool(*by_identifier(server, "echo", {"text": "hello"}))

    assert text(answer) == "hello"
