"""A server's questions reach the host, and the answers come back, for every pair of eras."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client

from tests.kit.config import config_file, entry, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, MODERN, enveloped, texts, use_tool
from tests.kit.sdk_host import LEGACY_MODE, by_identifier, sdk_host, text
from tests.kit.servers import ASKER

HOSTS = [LEGACY_MODE, MODERN]
SERVERS = ["legacy", "modern"]


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
        answer = types.TextContent(type="text", text="yes")
        return types.CreateMessageResult(role="assistant", content=answer, model="m")

    async def roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": "file:///work"})])


@asynccontextmanager
async def host(
    folder: Path, mode: str, person: Person | None, tools: str = "proxy"
) -> AsyncGenerator[Client]:
    servers = {era: program_entry(ASKER, era=era) for era in SERVERS}
    can_be_asked: dict[str, Any] = {}
    if person is not None:
        can_be_asked = {
            "elicitation_callback": person.elicit,
            "sampling_callback": person.sample,
            "list_roots_callback": person.roots,
        }
    async with sdk_host(folder, servers, mode=mode, tools=tools, **can_be_asked) as client:
        yield client


async def use(client: Client, server: str, tool: str) -> Any:
    result = await client.call_tool(*by_identifier(server, tool))
    return text(result) if result.is_error else json.loads(text(result))


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


def test_a_request_that_declares_less_takes_nothing_from_the_one_before_it(tmp_path: Path) -> None:
    """Both are read at once, so that the server is connected after the second."""
    servers = {"asker": program_entry(ASKER, era="legacy"), "a": entry()}
    can: Any = {META + "clientCapabilities": {"elicitation": {}}}
    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        requests = [(1, use_tool("asker", "name", _meta=can)), (2, use_tool("a", "echo"))]
        lines = [
            json.dumps(
                {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": enveloped(of)}
            )
            for id, of in requests
        ]
        host.write("".join(f"{line}\n" for line in lines).encode())

        asked = host.answer(1)["result"]

        assert asked["resultType"] == "input_required", asked
        assert "isError" not in host.answer(2)["result"]
        refused = host.use("asker", "name")
        assert "does not declare the capability" in texts(refused)[0]
        [key] = asked["inputRequests"]
        answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
        more = {"inputResponses": answer, "requestState": asked["requestState"], "_meta": can}
        assert "Ada" in texts(host.use("asker", "name", **more))[0]
