"""A shop made with version 2 of the Python SDK, both eras in one process: server_v2.py NAME pipe|http.

What a shop offers is said in shop.py. Over HTTP the number of the port is its first line.
"""

# pyright: basic
from __future__ import annotations

import socket
import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ToolsListChanged,
)

NAME, ROAD = sys.argv[1:]
BOOK = f"shop://{NAME}/book"
MODERN = "2026-07-28"
PATIENCE = 10  # seconds that `was_cancelled` waits
Context = ServerRequestContext[Any, Any]
Arguments = dict[str, Any]
Result = types.CallToolResult | types.InputRequiredResult
warnings.simplefilter(
    "ignore"
)  # sampling, levels and subscriptions are deprecated, and still there

announcements = InMemorySubscriptionBus()
sessions: set[Any] = set()
subscribed: set[Any] = set()
cancelled: dict[str, anyio.Event] = {}


def tool(name: str, /, **properties: str) -> types.Tool:
    schema = {"type": "object", "properties": {k: {"type": v} for k, v in properties.items()}}
    return types.Tool(name=name, description=f"Does {name}.", input_schema=schema)


SUM = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
tools = [
    tool("echo", text="string"),
    tool("add", a="number", b="number").model_copy(update={"output_schema": SUM}),
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


def said(text: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], **more)


async def echo(context: Context, arguments: Arguments) -> Result:
    return said(arguments["text"])


async def add(context: Context, arguments: Arguments) -> Result:
    total = arguments["a"] + arguments["b"]
    return said(str(total), structured_content={"sum": total})


async def fail(context: Context, arguments: Arguments) -> Result:
    return said(arguments["reason"], is_error=True)


async def count(context: Context, arguments: Arguments) -> Result:
    steps = arguments["steps"]
    for step in range(1, steps + 1):
        await context.session.report_progress(step, steps)
        await anyio.sleep(arguments.get("pause", 0) / 1000)
    return said(f"{steps} steps")


async def wait(context: Context, arguments: Arguments) -> Result:
    try:
        await context.session.report_progress(0)
        await anyio.sleep_forever()
        return said("woken")
    finally:
        cancelled.setdefault(arguments["key"], anyio.Event()).set()


async def was_cancelled(context: Context, arguments: Arguments) -> Result:
    with anyio.move_on_after(PATIENCE):
        await cancelled.setdefault(arguments["key"], anyio.Event()).wait()
        return said("yes")
    return said("no")


async def answered(context: Context, question: Any) -> Any:
    """The answer, or the question itself where the era wants it as the result."""
    if context.protocol_version == MODERN:
        params: Any = context.params  # see call_tool
        given = params.input_responses
        return (
            given["who"] if given else types.InputRequiredResult(input_requests={"who": question})
        )
    if isinstance(question, types.ElicitRequest):
        form: Any = question.params
        return await context.session.elicit_form(form.message, form.requested_schema)
    return await context.session.create_message(question.params.messages, max_tokens=5)


async def ask(context: Context, arguments: Arguments) -> Result:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    form = types.ElicitRequestFormParams(message="Who?", requested_schema=schema)
    answer = await answered(context, types.ElicitRequest(params=form))
    if isinstance(answer, types.InputRequiredResult):
        return answer
    return said(f"{answer.action} {(answer.content or {}).get('name')}")


async def sample(context: Context, arguments: Arguments) -> Result:
    message = types.SamplingMessage(role="user", content=types.TextContent(text="Say yes"))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=5)
    answer = await answered(context, types.CreateMessageRequest(params=params))
    return answer if isinstance(answer, types.InputRequiredResult) else said(answer.content.text)


async def log(context: Context, arguments: Arguments) -> Result:
    await context.session.send_log_message("info", arguments["text"])
    return said("logged")


async def touch(context: Context, arguments: Arguments) -> Result:
    await announcements.publish(ResourceUpdated(BOOK))
    for session in subscribed:
        await session.send_resource_updated(BOOK)
    return said("touched")


async def learn(context: Context, arguments: Arguments) -> Result:
    tools.append(tool(arguments["name"]))
    await announcements.publish(ToolsListChanged())
    for session in sessions:
        await session.send_tool_list_changed()
    return said("learned")


DOERS = {
    one.__name__: one
    for one in (echo, add, fail, count, wait, was_cancelled, ask, sample, log, touch, learn)
}


async def list_tools(context: Context, params: Any) -> types.ListToolsResult:
    if context.protocol_version != MODERN:
        sessions.add(context.session)
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Context, params: Any) -> Result:
    doer = DOERS.get(params.name)
    context.params = params
    return await doer(context, params.arguments or {}) if doer else said("newly learned")


async def list_prompts(context: Context, params: Any) -> types.ListPromptsResult:
    greet = types.Prompt(name="greet", arguments=[types.PromptArgument(name="who")])
    return types.ListPromptsResult(prompts=[greet])


async def get_prompt(context: Context, params: Any) -> types.GetPromptResult:
    hello = types.TextContent(text=f"Hello {(params.arguments or {}).get('who')}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=hello)])


async def list_resources(context: Context, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(name="book", uri=BOOK)])


async def read_resource(context: Context, params: Any) -> types.ReadResourceResult:
    content = types.TextResourceContents(uri=params.uri, text=f"This is {params.uri}")
    return types.ReadResourceResult(contents=[content])


async def subscribe(context: Context, params: Any) -> types.EmptyResult:
    subscribed.add(context.session)
    return types.EmptyResult()


async def unsubscribe(context: Context, params: Any) -> types.EmptyResult:
    subscribed.discard(context.session)
    return types.EmptyResult()


async def set_level(context: Context, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


class Shop(Server):
    """One that announces changes, on every road."""

    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


shop = Shop(
    NAME,
    version="1.0.0",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_list_resources=list_resources,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_set_logging_level=set_level,
    on_subscriptions_listen=ListenHandler(announcements),
)


async def on_a_pipe() -> None:
    async with stdio_server() as (receive, send):
        await shop.run(receive, send, shop.create_initialization_options())


def on_a_port() -> None:
    own = socket.create_server(("127.0.0.1", 0))
    print(own.getsockname()[1], flush=True)
    app = shop.streamable_http_app()
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[own])


if __name__ == "__main__":
    anyio.run(on_a_pipe) if ROAD == "pipe" else on_a_port()
