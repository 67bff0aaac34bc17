"""A host of version 1 of the SDK: calls with progress and questions. `load_v1.py URL TOKEN NAME CALLS`."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, token: str, name: str, calls: str) -> None:
    seen = {"ok": 0, "wrong": 0, "asked": 0, "notices": 0}

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        seen["asked"] += 1
        return types.ElicitResult(action="accept", content={"name": name})

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        seen["notices"] += 1

    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (receive, send, _),
        ClientSession(receive, send, elicitation_callback=elicit) as session,
    ):
        await session.initialize()
        for number in range(int(calls)):
            nonce = f"{name}-{number}"
            server, tool, arguments, expected = "quick", "echo", {"nonce": nonce}, nonce
            if number % 10 == 5:
                server, tool, arguments, expected = "asker", "name", {}, name
            elif number % 10 == 7:
                server, tool, arguments, expected = "one", "progress", {"n": 2}, "2"
            target = {"toolbox": "dev", "server": server, "tool": tool}
            result = await session.call_tool(
                "use_tool", {"tool": target, "arguments": arguments}, progress_callback=notice
            )
            right = not result.isError and expected in result.content[0].text
            seen["ok" if right else "wrong"] += 1
            if not right:
                print(result, file=sys.stderr)
    print(json.dumps(seen))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
