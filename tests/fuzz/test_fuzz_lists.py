"""Lists of servers, page by page, and names that somebody has mistyped."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import strategies as st

from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.tool_list import Unlistable, list_tools
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import scalars, strict_json, values

MOST = 12  # tools of one server
SECONDS = 20.0
NAMES = st.sampled_from(["a", "b", "c", "", "d\n", "é"]) | st.text(max_size=4)
TOOLS = st.fixed_dictionaries({"name": NAMES}, optional={"inputSchema": values}) | values
CURSORS = st.sampled_from(["1", "2", "3", ""]) | scalars
PAGES = st.fixed_dictionaries(
    {}, optional={"tools": st.lists(TOOLS, max_size=size(5)) | values, "nextCursor": CURSORS}
)
ANSWERS = st.fixed_dictionaries({"result": PAGES | values}) | st.just(
    {"error": {"code": -32601, "message": "none"}}
)


class Pages:
    """A server that answers with these pages in turn, and with the last of them from then on."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self.asked = 0
        self.conversation = Conversation(1 << 20, lambda _: None)
        self.conversation.channel = self

    backlog = 0

    def send(self, frame: bytes, about: bytes = b"") -> None:
        message = json.loads(frame)
        if message.get("method") != "tools/list":
            return
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode() + b"\n"
        asyncio.get_running_loop().call_soon(self.conversation.receive, line)


@fuzzed(st.lists(ANSWERS, min_size=1, max_size=5))
def test_any_pages_are_a_list_or_none(answers: list[Any]) -> None:
    async def listed() -> list[str]:
        pages = Pages(answers)
        try:
            catalogue, complaints = await list_tools(
                pages.conversation, MOST, SECONDS, modern=False
            )
        except Unlistable:
            return []
        assert all(complaints)
        for name, tool in catalogue.tools.items():
            assert strict_json(tool.raw)["name"] == name
        return list(catalogue.tools)

    names = asyncio.run(listed())
    assert len(names) <= MOST
    assert len(set(names)) == len(names)


@fuzzed(st.text(max_size=size(40)), st.lists(st.text(max_size=size(40)), max_size=20))
def test_a_mistyped_name_gets_a_known_one_or_none(wrong: str, known: list[str]) -> None:
    said = did_you_mean(wrong, known)

    assert not said or any(repr(name)[1:-1] in said or name in said for name in known)
    assert not known or wrong not in known or not wrong or said or len(wrong) > 200
