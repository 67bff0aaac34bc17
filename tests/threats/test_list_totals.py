"""All pages of a list together are no more than a single one may be."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from mcp_workbench.core.raw_json import MOST_ELEMENTS
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.handshake import Agreed, ServerCapabilities
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.primitives import Primitives
from mcp_workbench.upstream.tool_list import TOO_LARGE, list_tools
from tests.kit.clock import PATIENCE

LIMIT = 1 << 20  # bytes of a message
TOOL: Any = {"inputSchema": {"type": "object"}}


class Endless:
    """A server whose lists go on and on, page after page."""

    backlog = 0

    def __init__(self, page: Callable[[int], dict[str, Any]]) -> None:
        self.asked = 0
        self.talk = Conversation(LIMIT, lambda message: None)
        self.talk.channel = self
        self._page = page

    def send(self, frame: bytes, about: bytes = b"") -> None:
        request = json.loads(frame)
        self.asked += 1
        result = {"nextCursor": str(self.asked), **self._page(self.asked)}
        answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        asyncio.get_running_loop().call_soon(self.talk.receive, answer.encode() + b"\n")


def large(member: str, key: str) -> Callable[[int], dict[str, Any]]:
    """Pages of which four are as large as a message."""
    return lambda n: {member: [{**TOOL, key: f"x:{n}", "description": "x" * (LIMIT // 4)}]}


def long(member: str) -> Callable[[int], dict[str, Any]]:
    """Pages with many entries of little use."""
    return lambda n: {member: [{}] * (MOST_ELEMENTS // 4 + 1)}


def cursors(n: int) -> dict[str, Any]:
    return {"nextCursor": f"{n}" + "x" * (LIMIT // 4)}


@pytest.mark.parametrize(
    ("page", "tools"), [(large("tools", "name"), 3), (long("tools"), 0), (cursors, 0)]
)
async def test_tools_are_listed_as_far_as_one_page_could_be(page: Any, tools: int) -> None:
    server = Endless(page)

    found, complaints = await list_tools(server.talk, 10_000, PATIENCE, modern=False)

    assert (len(found.tools), server.asked) == (tools, 4)
    assert f"tools beyond the first {tools} were left out ({TOO_LARGE})" in complaints


@pytest.mark.parametrize(
    ("page", "count"), [(large("resources", "uri"), 3), (long("resources"), 0), (cursors, 0)]
)
async def test_so_are_resources(page: Any, count: int, caplog: pytest.LogCaptureFixture) -> None:
    server = Endless(page)
    offers = Primitives.alone(ServerAddress("dev", "s"))
    agreed = Agreed("2025-06-18", declared=ServerCapabilities(resources=True))

    with caplog.at_level(logging.WARNING):
        async with offers.open(server.talk, agreed, lambda: PATIENCE):
            found = await offers.listed("resources")

    assert (len(found.offers), server.asked) == (count, 4)
    told = f"dev/s: resources beyond the first {count} were left out ({TOO_LARGE})"
    assert caplog.messages == [told]
