"""A shop made with version 1 of the Python SDK: server_v1.py NAME pipe|http|sse.

Run by the interpreter that has this version. What a shop offers is said in shop.py. Over HTTP the
number of the port is its first line.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

NAME, ROAD = sys.argv[1:]
BOOK = f"shop://{NAME}/book"
PATIENCE = 10  # seconds that `was_cancelled` waits
Arguments = dict[str, Any]
Said = list[types.TextContent]


class Shop(Server):
    """One that announces changes, on every road."""

    def create_initialization_options(self, *_: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))

    def get_capabilities(self, *args: Any) -> types.ServerCapabilities:
        declared = super().get_capabilities(*args)
        declared.resources = types.ResourcesCapability(subscribe=True)  # it never says so itself
        return declared


class Customer:
    """One session, as long as it lasts. Writing to one that has ended would wait for ever."""

    session: Any = None
    subscribed = False


customers: set[Customer] = set()


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[Customer]:
    customer = Customer()
    customers.add(customer)
    try:
        yield customer
    finally:
        customers.discard(customer)


def customer() -> Customer:
    """Whose request this is."""
    mine: Customer = shop.request_context.lifespan_context
    mine.session = shop.request_context.session
    return mine


shop = Shop(NAME, version="1.0.0", lifespan=lifespan)
cancelled: dict[str, anyio.Event] = {}


def tool(name: str, /, **properties: str) -> types.Tool:
    schema = {"type": "object", "properties": {k: {"type": v} for k, v in properties.items()}}
    return types.Tool(name=name, description=f"Does {name}.", inputSchema=schema)


SUM = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
tools = [
    tool("echo", text="string"),
    tool("add", a="number", b="number").model_copy(update={"outputSchema": SUM}),
    tool("fail", reason="string"),
    tool("count", steps="integer", pause="integer"),
    tool("wait", key="string"),
    tool("was_cancelled", key="string"),
    tool("ask"),
    tool("sample"),
    tool("log", text="string"),
    tool("touch"),
    tool("learn", name="string"),
]


def said(text: str) -> Said:
    return [types.TextContent(type="text", text=text)]


async def tell(progress: float, total: float | None = None) -> None:
    """How far a call is, to whoever wants to know."""
    context = shop.request_context
    token = context.meta.progressToken if context.meta else None
    if token is not None:
        await context.session.send_progress_notification(
            token, progress, total, related_request_id=str(context.request_id)
        )


async def echo(arguments: Arguments) -> Said:
    return said(arguments["text"])


async def add(arguments: Arguments) -> tuple[Said, Arguments]:
    total = arguments["a"] + arguments["b"]
    return said(str(total)), {"sum": total}


async def fail(arguments: Arguments) -> Said:
    raise RuntimeError(arguments["reason"])


async def count(arguments: Arguments) -> Said:
    for step in range(1, arguments["steps"] + 1):
        await tell(step, arguments["steps"])
        await anyio.sleep(arguments.get("pause", 0) / 1000)
    return said(f"{arguments['steps']} steps")


async def wait(arguments: Arguments) -> Said:
    try:
        await tell(0)
        await anyio.sleep_forever()
        return said("woken")
    finally:
        cancelled.setdefault(arguments["key"], anyio.Event()).set()


async def was_cancelled(arguments: Arguments) -> Said:
    with anyio.move_on_after(PATIENCE):
        await cancelled.setdefault(arguments["key"], anyio.Event()).wait()
        return said("yes")
    return said("no")


async def ask(arguments: Arguments) -> Said:
    context = shop.request_context
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = await context.session.elicit_form("Who?", schema, context.request_id)
    return said(f"{answer.action} {(answer.content or {}).get('name')}")


async def sample(arguments: Arguments) -> Said:
    context = shop.request_context
    question = types.TextContent(type="text", text="Say yes")
    answer = await context.session.create_message(
        [types.SamplingMessage(role="user", content=question)],
        max_tokens=5,
        related_request_id=context.request_id,
    )
    return said(answer.content.text)


async def log(arguments: Arguments) -> Said:
    context = shop.request_context
    await context.session.send_log_message(
        "info", arguments["text"], related_request_id=context.request_id
    )
    return said("logged")


async def touch(arguments: Arguments) -> Said:
    for one in [one for one in customers if one.subscribed]:
        await one.session.send_resource_updated(BOOK)
    return said("touched")


async def learn(arguments: Arguments) -> Said:
    tools.append(tool(arguments["name"]))
    for one in [one for one in customers if one.session]:
        await one.session.send_tool_list_changed()
    return said("learned")


DOERS = {
    one.__name__: one
    for one in (echo, add, fail, count, wait, was_cancelled, ask, sample, log, touch, learn)
}


@shop.list_tools()
async def list_tools() -> list[types.Tool]:
    customer()
    return tools


@shop.call_tool()
async def call_tool(name: str, arguments: Arguments) -> Any:
    doer = DOERS.get(name)
    return await doer(arguments) if doer else said("newly learned")


@shop.list_prompts()
async def list_prompts() -> list[types.Prompt]:
    return [types.Prompt(name="greet", arguments=[types.PromptArgument(name="who")])]


@shop.get_prompt()
async def get_prompt(name: str, arguments: dict[str, str] | None) -> types.GetPromptResult:
    hello = types.TextContent(type="text", text=f"Hello {(arguments or {}).get('who')}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=hello)])


@shop.list_resources()
async def list_resources() -> list[types.Resource]:
    return [types.Resource(name="book", uri=BOOK)]


@shop.read_resource()
async def read_resource(uri: Any) -> str:
    return f"This is {uri}"


@shop.subscribe_resource()
async def subscribe(uri: Any) -> None:
    customer().subscribed = True


@shop.unsubscribe_resource()
async def unsubscribe(uri: Any) -> None:
    customer().subscribed = False


@shop.set_logging_level()
async def set_level(level: str) -> None:
    pass


def streamable() -> Starlette:
    manager = StreamableHTTPSessionManager(app=shop)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Mount("/", app=manager.handle_request)], lifespan=lifespan)


def old_transport() -> Starlette:
    transport = SseServerTransport("/messages/")

    async def stream(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:
            await shop.run(*streams, shop.create_initialization_options())
        return Response()

    routes = [Route("/mcp", endpoint=stream, methods=["GET"])]
    return Starlette(routes=[*routes, Mount("/messages/", app=transport.handle_post_message)])


async def on_a_pipe() -> None:
    async with stdio_server() as (receive, send):
        await shop.run(receive, send, shop.create_initialization_options())


def on_a_port(app: Starlette) -> None:
    own = socket.create_server(("127.0.0.1", 0))
    print(own.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[own])


if __name__ == "__main__":
    if ROAD == "pipe":
        anyio.run(on_a_pipe)
    else:
        on_a_port(streamable() if ROAD == "http" else old_transport())
