"""A host of version 2 of the SDK, of either era: `load_v2.py URL TOKEN NAME CALLS MODE`."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import httpx2
from mcp import types
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main(*words: str) -> None:
    url, token, name, calls, mode = words
    seen = {"ok": 0, "wrong": 0, "asked": 0, "notices": 0}

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        seen["asked"] += 1
        return types.ElicitResult(action="accept", content={"name": name})

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        seen["notices"] += 1

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode=mode,
            cache=None,
            elicitation_callback=elicit,
        ) as client,
    ):
        for number in range(int(calls)):
            nonce = f"{name}-{number}"
            server, tool, arguments, expected = "quick", "echo", {"nonce": nonce}, nonce
            if number % 10 == 5:
                server, tool, arguments, expected = "asker", "name", {}, name
            elif number % 10 == 7:
                server, tool, arguments, expected = "one", "progress", {"n": 2}, "2"
            target = {"toolbox": "dev", "server": server, "tool": tool}
            whole: dict[str, Any] = {"tool": target, "arguments": arguments}
            result: Any = await client.call_tool("use_tool", whole, progress_callback=notice)
            right = not result.is_error and expected in result.content[0].text
            seen["ok" if right else "wrong"] += 1
            if not right:
                print(result, file=sys.stderr)
    print(json.dumps(seen))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
