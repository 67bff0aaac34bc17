"""Version 1 of the Python SDK as a host whose person decides: approve_v1.py DECISION COMMAND...|URL.

Run by its interpreter. It calls `echo` of the server `a` twice, and writes what was asked and what came of it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def streams(command: str, *args: str) -> Any:
    if command.startswith("http:"):
        async with streamable_http_client(command) as (receive, send, _):
            yield receive, send
    else:
        params = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
        async with stdio_client(params) as pair:
            yield pair


async def main(decision: str, *target: str) -> None:
    asked: list[str] = []
    results: list[Any] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": decision})

    async with (
        streams(*target) as pair,
        ClientSession(*pair, elicitation_callback=elicit) as session,
    ):
        await session.initialize()
        tool = {"toolbox": "dev", "server": "a", "tool": "echo"}
        for _ in range(2):
            arguments = {"tool": tool, "arguments": {"text": "hi"}}
            result = await session.call_tool("use_tool", arguments)
            results.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
    print(json.dumps({"asked": asked, "results": results}))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
