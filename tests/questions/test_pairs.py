"""A server's questions reach the host, and the answers come back, for every pair of eras."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.kit.config import program_entry
from tests.kit.servers import ASKER

HOSTS = ["legacy", "2026-07-28"]
SERVERS = ["legacy", "modern"]
PATIENCE = 20.0


class Person:
    """Sits before the host and answers everything; remembers what was asked."""

    def __init__(self, action: str = "accept") -> None:
        self.action: Any = action
        self.asked: list[str] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        content: Any = {"name": f"Ada {len(self.asked)}"} if self.action == "accept" else None
        return types.ElicitResult(action=self.action, content=content)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        said = types.TextContent(type="text", text="yes")
        return types.CreateMessageResult(role="assistant", content=said, model="m")

    async def roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///work"})])


@asynccontextmanager
async def host(
    folder: Path, mode: str, person: Person | None, tools: str = "proxy"
) -> AsyncGenerator[Client]:
    servers = {era: program_entry(ASKER, era=era) for era in SERVERS}
    config = folder / "workbench-config.json"
    config.write_text(
        json.dumps({"toolMode": tools, "toolboxes": {"lab": {"mcpServers": servers}}})
    )
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_workbench", "serve", "--config", str(config)]
    )
    can_be_asked: dict[str, Any] = {}
    if person is not None:
        can_be_asked = {
            "elicitation_callback": person.elicit,
            "sampling_callback": person.sample,
            "list_roots_callback": person.roots,
        }
    transport = stdio_client(command)
    client = Client(transport, mode=mode, cache=None, read_timeout_seconds=PATIENCE, **can_be_asked)
    async with client:
        yield client


async def use(client: Client, server: str, tool: str) -> Any:
    wish = {"tool": {"toolbox": "lab", "server": server, "tool": tool}, "arguments": {}}
    result = await client.call_tool("use_tool", wish)
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text if result.is_error else json.loads(block.text)


pairs = pytest.mark.parametrize(
    ("mode", "server"), [(mode, server) for mode in HOSTS for server in SERVERS]
)


@pairs
async def test_every_question_is_put_and_its_answer_comes_back(
    tmp_path: Path, mode: str, server: str
) -> None:
    """To the person with the asker's name, to the model, for roots; one, several at once, and again."""
    person = Person()
    async with host(tmp_path, mode, person) as client:
        declared = await use(client, server, "can")
        [name] = (await use(client, server, "name")).values()
        asked = list(person.asked)
        [model] = (await use(client, server, "model")).values()
        [roots] = (await use(client, server, "roots")).values()
        together = await use(client, server, "all")
        before = len(person.asked)
        twice = json.dumps(await use(client, server, "twice"))

    assert set(declared) == {"elicitation", "sampling", "roots"}
    assert asked == [f"[lab/{server}] Your name?"]
    assert (name["action"], name["content"]) == ("accept", {"name": "Ada 1"})
    assert model["content"]["text"] == "yes"
    assert [root["uri"] for root in roots["roots"]] == ["file:///work"]
    assert together["a"]["content"] == {"name": "Ada 2"}
    assert together["b"]["content"]["text"] == "yes"
    assert together["c"]["roots"][0]["uri"] == "file:///work"
    assert (before, len(person.asked)) == (2, 4)
    assert "Ada 3" in twice
    assert "Ada 4" in twice


@pairs
async def test_a_person_may_say_no(tmp_path: Path, mode: str, server: str) -> None:
    async with host(tmp_path, mode, Person("decline")) as client:
        [answer] = (await use(client, server, "name")).values()

    assert answer["action"] == "decline"


@pairs
async def test_a_host_that_can_not_be_asked_is_not_asked(
    tmp_path: Path, mode: str, server: str
) -> None:
    async with host(tmp_path, mode, None) as client:
        declared = await use(client, server, "can")
        told = await use(client, server, "name")

    assert declared == {}
    assert "elicitation" in json.dumps(told)


@pairs
async def test_questions_pass_under_flat_names_too(tmp_path: Path, mode: str, server: str) -> None:
    async with host(tmp_path, mode, Person(), tools="dynamic") as client:
        result = await client.call_tool(f"lab__{server}__name", {})

    [block] = result.content
    assert isinstance(block, types.TextContent)
    assert "Ada 1" in block.text
