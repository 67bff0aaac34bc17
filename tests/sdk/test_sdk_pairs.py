"""Hosts and servers of the official SDK, each in either era, with the workbench in proxy mode between."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from tests.kit.results import LEGACY, MODERN, Json
from tests.kit.sdk_host import (
    ERA,
    LEGACY_MODE,
    MODES,
    NEW,
    OLD,
    both_eras,
    by_identifier,
    directly,
    plain,
    sdk_host,
    taken_back,
    text,
)

pytestmark = pytest.mark.usefixtures("forked_commands")

CALLS: list[tuple[str, Json]] = [
    ("echo", {"text": "Grüße 🙂 \u2028 \ufeff \\ud83d"}),
    ("add", {"a": 0.1, "b": 2**60}),
    ("every_block", {}),
    ("fail", {"reason": "no paper"}),
]

both = pytest.mark.parametrize("server", [OLD, NEW])


class Direct(NamedTuple):
    """The measure: definitions, and the results of CALLS."""

    definitions: list[Json]
    results: list[Json]


@pytest.fixture(scope="module", params=MODES)
async def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Client]:
    folder = tmp_path_factory.mktemp("bench")
    async with sdk_host(folder, both_eras(), mode=request.param) as host:
        yield host


@pytest.fixture(scope="module")
async def direct(tmp_path_factory: pytest.TempPathFactory) -> Direct:
    """What a legacy host gets from the server itself, with nothing between them."""
    async with directly(tmp_path_factory.mktemp("direct"), mode=LEGACY_MODE) as host:
        results = [plain(await host.call_tool(tool, arguments)) for tool, arguments in CALLS]
        return Direct(await every_definition(host), results)


async def call(host: Client, server: str, tool: str, **arguments: Any) -> CallToolResult:
    return await host.call_tool(*by_identifier(server, tool, arguments))


async def test_the_host_gets_the_era_that_it_asks_for(host: Client) -> None:
    wished = LEGACY if host.mode == LEGACY_MODE else MODERN

    assert host.protocol_version == wished
    if host.mode != MODERN:  # a pinned host asks nothing before its first request
        assert host.server_info is not None
        assert host.server_info.name == "mcp-workbench"
        assert host.instructions is not None
        assert "lab" in host.instructions


async def test_two_tools_stand_for_all_others(host: Client) -> None:
    listed = await host.list_tools()

    assert [tool.name for tool in listed.tools] == ["open_toolbox", "use_tool", "search_tools"]
    assert listed.next_cursor is None


async def test_an_opened_toolbox_shows_what_its_servers_list(host: Client, direct: Direct) -> None:
    opened: Json = json.loads(text(await host.call_tool("open_toolbox", {"toolbox_name": "lab"})))

    assert opened["toolbox"] == "lab"
    assert opened["servers_connected"] == 2
    assert "unavailable" not in opened
    assert opened["tools"] == [
        {**tool, "toolbox_name": "lab", "source_server": server}
        for server in (OLD, NEW)
        for tool in direct.definitions
    ]


async def every_definition(host: Client) -> list[Json]:
    found: list[Json] = []
    cursor: str | None = None
    while True:
        page = await host.list_tools(cursor=cursor)
        found += [plain(tool) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found


@both
async def test_a_server_is_met_in_its_own_era_and_by_the_workbench(
    host: Client, server: str
) -> None:
    meta: Any = {"example.com/trace": {"depth": 2}, "traceparent": "00-1-2-01"}
    name, arguments = by_identifier(server, "about_the_call")

    answer = await host.call_tool(name, arguments, meta=meta)

    assert answer.structured_content == {
        "era": ERA[server],
        "client": "mcp-workbench",
        "meta": meta,
    }


@both
@pytest.mark.parametrize("number", range(len(CALLS)), ids=[tool for tool, _ in CALLS])
async def test_a_result_is_the_one_that_the_server_gives(
    host: Client, direct: Direct, server: str, number: int
) -> None:
    tool, arguments = CALLS[number]

    answer = await call(host, server, tool, **arguments)

    assert plain(answer) == direct.results[number]


@both
async def test_a_failed_tool_is_a_result(host: Client, server: str) -> None:
    answer = await call(host, server, "fail", reason="no paper")

    assert answer.is_error
    assert text(answer) == "no paper"


@both
async def test_an_error_of_the_server_passes_with_code_message_and_data(
    host: Client, server: str
) -> None:
    with pytest.raises(MCPError) as caught:
        await call(host, server, "refuse", code=-31999)

    assert caught.value.code == -31999
    assert caught.value.message == "not today"
    assert caught.value.data == {"until": ["tomorrow", 9.5, None]}


@both
async def test_an_unknown_tool_is_told_in_words(host: Client, server: str) -> None:
    answer = await call(host, server, "ecco")

    assert answer.is_error
    assert plain(answer)["content"][0]["text"] == (
        f"Tool 'ecco' not found in server '{server}' (toolbox 'lab')"
    )


@both
async def test_progress_comes_in_order_and_before_the_result(host: Client, server: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    name, arguments = by_identifier(server, "count", {"steps": 100})
    answer = await host.call_tool(name, arguments, progress_callback=note)

    assert text(answer) == "100 steps"
    assert seen == [(step, 100, f"step {step}") for step in range(1, 101)]


@both
async def test_progress_that_nobody_asked_for_stays_away(host: Client, server: str) -> None:
    assert text(await call(host, server, "count", steps=5)) == "5 steps"


@both
async def test_progress_of_two_calls_is_not_mixed_up(host: Client, server: str) -> None:
    seen: dict[int, list[float]] = {30: [], 40: []}

    async def count(steps: int) -> None:
        async def note(progress: float, total: float | None, message: str | None) -> None:
            assert total == steps
            seen[steps].append(progress)

        name, arguments = by_identifier(server, "count", {"steps": steps})
        await host.call_tool(name, arguments, progress_callback=note)

    async with anyio.create_task_group() as tasks:
        for steps in seen:
            tasks.start_soon(count, steps)

    assert seen == {steps: [*range(1, steps + 1)] for steps in seen}


@both
async def test_a_call_taken_back_is_taken_back_at_the_server(host: Client, server: str) -> None:
    key = f"{host.mode} {server}"
    name, arguments = by_identifier(server, "wait", {"key": key})

    await taken_back(host, name, arguments)

    assert text(await call(host, server, "was_cancelled", key=key)) == "yes"


@both
async def test_fifty_calls_at_once_each_get_their_own_answer(host: Client, server: str) -> None:
    answers: dict[int, str] = {}

    async def ask(number: int) -> None:
        answers[number] = text(await call(host, server, "echo", text=f"number {number}"))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(ask, number)

    assert answers == {number: f"number {number}" for number in range(50)}


@both
async def test_a_result_of_megabytes_arrives_whole(host: Client, server: str) -> None:
    answer = await call(host, server, "large", characters=1_000_000)

    assert text(answer) == "é" * 1_000_000


@both
async def test_an_argument_of_megabytes_arrives_whole(host: Client, server: str) -> None:
    long = "ü" * 1_000_000

    assert text(await call(host, server, "echo", text=long)) == long


@both
async def test_a_question_to_a_host_that_takes_none_is_refused_and_nothing_hangs(
    host: Client, server: str
) -> None:
    """This host declares no elicitation, so neither does the workbench towards the server."""
    if server == OLD:  # its own question is refused, and it hands that on
        with pytest.raises(MCPError, match="elicitation/create"):
            await call(host, server, "ask")
    else:
        answer = await call(host, server, "ask")
        assert answer.is_error
        assert "elicitation/create" in plain(answer)["content"][0]["text"]

    assert text(await call(host, server, "echo", text="still here")) == "still here"
