"""The servers that everybody uses, all in one toolbox behind one workbench."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crew import MODERN_SERVERS, REVISIONS, World, crew, make_world
from rawpeer import Peer, Refused, as_python, exact, running, workbench

from tests.kit.results import Json

pytestmark = pytest.mark.peers

# Calls whose results never vary: with and without the workbench they are the same.
STEADY: list[tuple[str, str, Json]] = [
    ("everything", "get-tiny-image", {}),
    ("everything", "get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("everything", "get-structured-content", {"location": "Chicago"}),
    ("everything", "get-resource-links", {"count": 3}),
    ("filesystem", "list_allowed_directories", {}),
    ("filesystem", "read_text_file", {"path": "/outside"}),
    ("typescript", "add", {"a": 0.5, "b": 2}),
    ("typescript", "add", {"a": "half"}),
    ("typescript-legacy", "add", {"a": 0.5, "b": 2}),
    ("old", "structuredContent", {"location": "Chicago"}),
    ("older", "getTinyImage", {}),
    ("older", "add", {"a": 2, "b": 3}),
]

# Except where arguments were refused: behind the server's words stands what its tool takes.
MISSED = ("typescript", "add", {"a": "half"})
LESSON = "a: Expected number, received string\nadd(a?: num, b?: num)"


class Direct(NamedTuple):
    """What the servers say when nothing stands between."""

    definitions: dict[str, list[Json]]
    results: list[Json]


class Bench(NamedTuple):
    """A host at the workbench, which calls in the way of its mode."""

    host: Peer
    dynamic: bool

    def named(self, server: str, tool: str, arguments: Json) -> tuple[str, Json]:
        if self.dynamic:
            return f"peers__{server}__{tool}", arguments
        identifier = {"toolbox": "peers", "server": server, "tool": tool}
        return "use_tool", {"tool": identifier, "arguments": arguments}

    async def call(self, server: str, tool: str, arguments: Json, *, token: str = "") -> Json:
        return await self.host.call(*self.named(server, tool, arguments), token=token)

    async def text(self, server: str, tool: str, arguments: Json) -> str:
        result = await self.call(server, tool, arguments)
        assert not result.get("isError"), result
        return result["content"][0]["text"]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
async def direct(workplace: Path, world: World, tmp_path_factory: pytest.TempPathFactory) -> Direct:
    definitions: dict[str, list[Json]] = {}
    results: dict[int, Json] = {}
    for name, entry in crew(workplace, world).items():
        modern = name in MODERN_SERVERS
        command = [entry["command"], *entry["args"]]
        folder = tmp_path_factory.mktemp(name)
        async with running(command, folder, modern=modern, env=entry.get("env")) as server:
            definitions[name] = await server.tools()
            for number, (owner, tool, arguments) in enumerate(STEADY):
                if owner == name:
                    results[number] = await outcome(server.call(tool, arguments))
    return Direct(definitions, [results[number] for number in range(len(STEADY))])


async def outcome(call: Any) -> Json:
    """What a host is left with, without what the modern era adds to a hop."""
    try:
        result: Json = await call
    except Refused as refused:
        return {"refused": refused.code, "message": str(refused)}
    result = {key: value for key, value in result.items() if key != "resultType"}
    result.get("_meta", {}).pop("io.modelcontextprotocol/serverInfo", None)
    return (
        result if result.get("_meta", True) else {k: v for k, v in result.items() if k != "_meta"}
    )


@pytest.fixture(
    scope="module",
    params=[(tools, era) for tools in ("proxy", "dynamic") for era in ("legacy", "modern")],
    ids=" ".join,
)
async def bench(
    request: pytest.FixtureRequest,
    workplace: Path,
    world: World,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[Bench]:
    tools, era = request.param
    folder = tmp_path_factory.mktemp("bench")
    mark = f"{folder} {tools} {era}"
    world.memories.unlink(missing_ok=True)
    servers = crew(workplace, world)
    bench = workbench(folder, servers, modern=era == "modern", tools=tools, mark=mark)
    async with bench as host:
        yield Bench(host, dynamic=tools == "dynamic")


async def test_opening_lists_every_tool_as_its_server_does(bench: Bench, direct: Direct) -> None:
    result = await bench.host.call("open_toolbox", {"toolbox_name": "peers"})
    opened: Json = exact(result["content"][0]["text"])

    assert "unavailable" not in opened
    assert as_python(opened["servers_connected"]) == len(REVISIONS)
    if bench.dynamic:
        assert opened["tools"] == [
            {"name": f"peers__{server}__{name}", "toolbox_name": "peers", "source_server": server}
            for server, name in in_order(direct)
        ]
    else:
        assert opened["tools"] == [
            {**tool, "toolbox_name": "peers", "source_server": server}
            for server, tools in direct.definitions.items()
            for tool in tools
        ]


def in_order(direct: Direct) -> list[tuple[str, str]]:
    return [
        (server, tool["name"]) for server, tools in direct.definitions.items() for tool in tools
    ]


async def test_the_list_of_tools_is_the_one_of_the_mode(bench: Bench, direct: Direct) -> None:
    """By now the toolbox is open, so in dynamic mode hosts of both eras see all of it."""
    listed = await bench.host.tools()

    own = ["open_toolbox"] if bench.dynamic and bench.host.modern else ["open_toolbox", "use_tool"]
    own += [] if bench.dynamic else ["search_tools"]
    assert [tool["name"] for tool in listed[: len(own)]] == own
    flat = listed[len(own) :]
    if not bench.dynamic:
        assert flat == []
        return
    assert flat == [
        flattened(tool, server) for server, tools in direct.definitions.items() for tool in tools
    ]
    if not bench.host.modern:
        methods = [notice["method"] for notice in bench.host.notices]
        assert "notifications/tools/list_changed" in methods


def flattened(tool: Json, server: str) -> Json:
    origin = {"source_server": server, "toolbox_name": "peers", "original_name": tool["name"]}
    origin["anthropic/searchHint"] = f"peers {server}"
    if tool.get("execution") == {"taskSupport": "required"}:  # called without one, it works, too
        tool = {**tool, "execution": {"taskSupport": "optional"}}
    return {
        **tool,
        "name": f"peers__{server}__{tool['name']}",
        "description": f"[peers/{server}] {tool.get('description') or tool['name']}",
        "_meta": {**tool.get("_meta", {}), **origin},
    }


@pytest.mark.parametrize(
    "number", range(len(STEADY)), ids=[f"{server} {tool}" for server, tool, _ in STEADY]
)
async def test_a_result_is_the_one_that_the_server_gives(
    bench: Bench, direct: Direct, number: int
) -> None:
    server, tool, arguments = STEADY[number]
    expected = direct.results[number]

    seen = await outcome(bench.call(server, tool, arguments))

    if bench.dynamic and "refused" in expected:
        text = f"[peers/{server}/{tool}] Error: {expected['message']}"
        assert seen == {"content": [{"type": "text", "text": text}], "isError": True}
    elif STEADY[number] == MISSED:
        hint_for = {"type": "text", "text": LESSON}
        assert seen == {**expected, "content": [*expected["content"], hint_for]}
    else:
        assert seen == expected


async def test_everything_echoes_and_adds(bench: Bench) -> None:
    assert await bench.text("everything", "echo", {"message": "Grüße"}) == "Echo: Grüße"
    assert "5" in await bench.text("everything", "get-sum", {"a": 2, "b": 3})


@pytest.mark.parametrize("server", ["old", "older"])
async def test_servers_of_earlier_revisions_echo_and_add(bench: Bench, server: str) -> None:
    assert await bench.text(server, "echo", {"message": "Grüße"}) == "Echo: Grüße"
    assert "5" in await bench.text(server, "add", {"a": 2, "b": 3})


@pytest.mark.parametrize(
    ("server", "tool"),
    [
        ("everything", "trigger-long-running-operation"),
        ("old", "longRunningOperation"),
        ("older", "longRunningOperation"),
    ],
)
async def test_a_long_operation_tells_how_far_it_is(bench: Bench, server: str, tool: str) -> None:
    token = f"long {server}"

    result = await bench.call(server, tool, {"duration": 0.2, "steps": 4}, token=token)

    assert "completed" in result["content"][0]["text"]
    assert bench.host.progress(token) == [1, 2, 3, 4]


@pytest.mark.parametrize("server", ["typescript", "typescript-legacy"])
async def test_a_server_in_typescript_of_either_era_tells_how_far_it_is(
    bench: Bench, server: str
) -> None:
    token = f"count {server}"

    await bench.call(server, "count", {"steps": 50}, token=token)

    assert bench.host.progress(token) == [*range(1, 51)]


@pytest.mark.parametrize(
    ("server", "tool", "arguments"),
    [
        ("everything", "trigger-long-running-operation", {"duration": 0.2, "steps": 1}),
        ("typescript", "count", {"steps": 1, "pause": 200}),
    ],
)
async def test_a_call_taken_back_is_never_answered(
    bench: Bench, server: str, tool: str, arguments: Json
) -> None:
    number = await bench.host.call_and_take_back(*bench.named(server, tool, arguments))

    await bench.call(server, tool, arguments)  # takes as long, and began later

    answered = [as_python(notice["id"]) for notice in bench.host.notices if "id" in notice]
    assert number not in answered


async def test_filesystem_reads_and_writes(bench: Bench, world: World) -> None:
    note, copy = world.files / "note.txt", world.files / "copy.txt"

    read = await bench.text("filesystem", "read_text_file", {"path": str(note)})
    await bench.text("filesystem", "write_file", {"path": str(copy), "content": read})

    assert read == note.read_text(encoding="utf-8")
    assert copy.read_text(encoding="utf-8") == read
    copy.unlink()


async def test_memory_remembers(bench: Bench) -> None:
    someone = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}

    await bench.text("memory", "create_entities", {"entities": [someone]})

    graph = json.loads(await bench.text("memory", "read_graph", {}))
    assert graph["entities"] == [someone]
    assert json.loads(await bench.text("memory", "search_nodes", {"query": "first program"}))[
        "entities"
    ] == [someone]


async def test_git_tells_the_history(bench: Bench, world: World) -> None:
    log = await bench.text("git", "git_log", {"repo_path": str(world.repository), "max_count": 1})

    assert "The first commit" in log


async def test_time_converts_between_zones(bench: Bench) -> None:
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}

    converted = json.loads(await bench.text("time", "convert_time", arguments))

    assert converted["time_difference"] == "+9.0h"
    assert converted["target"]["datetime"].endswith("T21:00:00+09:00")


async def test_a_tool_that_no_server_has_is_told_in_words(bench: Bench) -> None:
    result = await bench.call("git", "git_lost", {})

    text = "Tool 'git_lost' not found in server 'git' (toolbox 'peers')"
    assert result["isError"] is True
    assert result["content"][0]["text"] == (
        f"[peers/git/git_lost] Error: {text}" if bench.dynamic else text
    )
