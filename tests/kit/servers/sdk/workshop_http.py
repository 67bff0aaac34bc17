"""The workshop of the official SDK behind HTTP, in every form that the SDK offers."""

# pyright: basic
from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
import workshop
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.subscriptions import ListenHandler
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

workshop.tools.append(workshop._tool("has_begun", key="string"))
server = Server(
    "workshop",
    version="1.2.3",
    on_list_tools=workshop.list_tools,
    on_call_tool=workshop.call_tool,
    on_subscriptions_listen=ListenHandler(workshop.announcements),
)


def old_transport() -> Starlette:
    transport = SseServerTransport("/messages/")

    async def stream(request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(*streams, server.create_initialization_options())
        return Response()

    routes = [
        Route("/mcp", endpoint=stream, methods=["GET"]),
        Mount("/messages/", app=transport.handle_post_message),
    ]
    return Starlette(routes=routes)


KINDS = {
    "sessions": server.streamable_http_app,
    "stateless": lambda: server.streamable_http_app(stateless_http=True),
    "json": lambda: server.streamable_http_app(json_response=True),
    "sse": old_transport,
}


async def serve(kinds: list[str]) -> None:
    """Each kind on a port of its own; the ports are told in this order."""
    async with asyncio.TaskGroup() as group:
        for kind in kinds:
            own = socket.create_server(("127.0.0.1", 0), backlog=64)
            print(own.getsockname()[1], flush=True)
            config = uvicorn.Config(KINDS[kind](), log_level="error", timeout_graceful_shutdown=1)
            group.create_task(uvicorn.Server(config).serve(sockets=[own]))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
