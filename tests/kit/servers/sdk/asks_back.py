"""A server made with the official SDK whose tools ask and log as before 2026-07-28.

    asks_back.py [http]

Both eras in one process. Over HTTP the number of the port is its first line.
"""

# pyright: basic
from __future__ import annotations

import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("asks-back")


class Answer(BaseModel):
    name: str


@server.tool()
async def ask(ctx: Context) -> str:
    """Asks on the back-channel, which 2026-07-28 does not have."""
    answer = await ctx.elicit("Who?", Answer)
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}"


@server.tool()
async def log(text: str, ctx: Context) -> str:
    """Logs at the level `info`, and at `debug`."""
    await ctx.info(text)
    await ctx.debug(f"{text}, in detail")
    return str(ctx.request_context.protocol_version)


def on_a_port() -> None:
    own = socket.create_server(("127.0.0.1", 0))
    print(own.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[own])


def main() -> None:
    on_a_port() if sys.argv[1:] == ["http"] else server.run("stdio")


if __name__ == "__main__":
    main()
