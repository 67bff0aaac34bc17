"""Over HTTP, what was kept for one host is not another's, and each searches what it may see."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.spec import HttpSettings, NamedToken
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Port, port, rpc
from tests.kit.results import texts, use_tool

BOSS, CI = "boss-" + "b" * 32, "ci-" + "c" * 32
WISH = HttpSettings(tokens=(NamedToken("boss", BOSS), NamedToken("ci", CI, ("dev",))))
BUDGETED = snapshot(spec("fixture", result_budget=100), spec("vault", toolbox="ops"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Guest:
    """A host of either era with a token."""

    def __init__(self, opened: Port, token: str, *, modern: bool) -> None:
        self._opened = opened
        self._token = token
        self._modern = modern
        self._headers: dict[str, Any] = {"authorization": f"Bearer {token}"}

    async def enter(self) -> Guest:
        if not self._modern:
            session = await self._opened.open(**self._headers)
            self._headers = session.headers
        return self

    async def call(self, params: dict[str, Any]) -> list[str]:
        if self._modern:
            body, headers = self._opened.modern("tools/call", params)
        else:
            body, headers = rpc("tools/call", params, 7), {}
        answer = await self._opened.ask(body, {**self._headers, **headers})
        return texts(answer.result)


def own(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_a_result_is_read_by_the_host_alone_that_made_the_call(*, modern: bool) -> None:
    async with port(BUDGETED, WISH) as opened:
        boss = await Guest(opened, BOSS, modern=modern).enter()
        again = await Guest(opened, BOSS, modern=modern).enter()
        other = await Guest(opened, CI, modern=modern).enter()

        head, notice = await boss.call(use_tool("fixture", "big", {"n": 500}))
        wish = json.loads(re.findall(r"read_result (.*)$", notice)[0])
        mine = await boss.call(own("read_result", **wish, length=1000))
        same_token = await again.call(own("read_result", **wish, length=1000))
        foreign = await other.call(own("read_result", **wish))

    assert head + mine[0] == json.dumps("x" * 500)
    assert foreign[0] == f"Result '{wish['handle']}' not found"
    # A modern host has no session: all that come with one token are one. A legacy one has its own.
    assert (same_token == mine) == modern


async def test_a_search_sees_what_its_host_may_see() -> None:
    eager = msgspec.structs.replace(
        BUDGETED,
        toolboxes={
            name: msgspec.structs.replace(box, discover="eager")
            for name, box in BUDGETED.toolboxes.items()
        },
    )
    async with port(eager, WISH) as opened:
        boss = Guest(opened, BOSS, modern=True)
        other = Guest(opened, CI, modern=True)
        wide = await boss.call(own("search_tools", query="say it again", limit=20))
        narrow = await other.call(own("search_tools", query="say it again", limit=20))
        hidden = await other.call(own("search_tools", query="echo", toolbox="ops"))

    assert "# dev/fixture" in wide[0]
    assert "# ops/vault" in wide[0]
    assert "ops" not in narrow[0]
    assert "vault" not in narrow[0]
    assert hidden[0] == "Toolbox 'ops' not found"
