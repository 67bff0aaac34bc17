"""Hosts of the official SDK answer the question with what they have for elicitation, in both eras and transports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.approvals.scenes import NO, ONCE
from tests.kit.config import entry, snapshot, spec
from tests.kit.http_host import port
from tests.kit.results import CODE, MODERN
from tests.kit.sdk_host import LEGACY_MODE, by_flat_name, by_identifier, client, sdk_host

HOSTS = [LEGACY_MODE, MODERN]


class Person:
    """Decides always the same; remembers what was asked."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.asked: list[str] = []

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": self.decision})


def answer(result: types.CallToolResult) -> str:
    """The code of an error of ours, or the arguments that the server got."""
    if result.is_error:
        return str((result.meta or {}).get(CODE))
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return json.dumps(json.loads(block.text)["arguments"])


@pytest.mark.parametrize("mode", HOSTS)
@pytest.mark.parametrize("tools", ["proxy", "dynamic"])
async def test_over_stdio(tmp_path: Path, mode: str, tools: str) -> None:
    servers = {"a": entry(approve="destructive")}
    name = by_identifier if tools == "proxy" else by_flat_name
    for decision, expected in ((ONCE, '{"text": "hi"}'), (NO, "denied")):
        person = Person(decision)
        host = sdk_host(
            tmp_path, servers, mode=mode, tools=tools, elicitation_callback=person.elicit
        )
        async with host as session:
            result = await session.call_tool(*name("a", "echo", {"text": "hi"}))

        assert answer(result) == expected
        [message] = person.asked
        assert 'call the tool "echo" of the server lab/a' in message
        assert message.endswith('{"text":"hi"}')


@pytest.mark.parametrize("mode", HOSTS)
async def test_over_http(mode: str) -> None:
    async with port(snapshot(spec("a", toolbox="lab", approve=("echo",)))) as opened:
        for decision, expected in ((ONCE, '{"text": "hi"}'), (NO, "denied")):
            person = Person(decision)
            url = f"http://{opened.name}/mcp"
            async with client(url, mode=mode, elicitation_callback=person.elicit) as session:
                result = await session.call_tool(*by_identifier("a", "echo", {"text": "hi"}))

            assert answer(result) == expected
            assert len(person.asked) == 1


@pytest.mark.parametrize("mode", HOSTS)
async def test_a_host_that_can_not_ask_is_told_so(tmp_path: Path, mode: str) -> None:
    async with sdk_host(tmp_path, {"a": entry(approve=True)}, mode=mode) as session:
        result = await session.call_tool(*by_identifier("a", "echo"))

    assert answer(result) == "denied"
