"""What a server says unasked stays within its toolbox."""

from __future__ import annotations

import sys

from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from tests.http.test_tokens import BOSS, CI, WISH, bearer
from tests.kit.config import snapshot, spec
from tests.kit.http_host import port
from tests.kit.servers import ADDRESSES


async def test_that_an_address_was_visited_is_told_to_hosts_of_that_toolbox_alone() -> None:
    vault = ServerSpec(
        ServerAddress("ops", "vault"),
        StdioCommand(sys.executable, ("-E", "-S", ADDRESSES)),
        era="legacy",
    )
    call = {"toolbox": "ops", "server": "vault", "tool": "login"}

    async with port(snapshot(spec("fixture"), vault), WISH) as opened:
        boss = await opened.open(**bearer(BOSS))
        stranger = await opened.open(**bearer(CI))  # of `dev` alone
        hears, overhears = await boss.listen(), await stranger.listen()
        params = {"name": "use_tool", "arguments": {"tool": call, "arguments": {}}}
        answer = await boss.post(boss.ask("tools/call", params))
        told = await hears.message()
        await stranger.post(b"", "DELETE")  # ends its stream: all that it will ever hear is there
        heard = [part async for part in overhears.chunks()]

    assert answer.error["code"] == -32042
    assert told["method"] == "notifications/elicitation/complete"
    assert b"elicitation" not in b"".join(heard)
