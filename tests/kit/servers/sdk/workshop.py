"""A server made with the official SDK: one tool for each thing that has to pass the workbench."""

# pyright: basic
from __future__ import annotations

import os
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Annotations,
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    Icon,
    ImageContent,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

Context = ServerRequestContext[Any, Any]
Arguments = dict[str, Any]

MODERN = "2026-07-28"
PATIENCE = 10  # seconds that `was_cancelled` waits
PNG = "iVBORw0KGgo="


def _tool(name: str, /, **properties: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return Tool(name=name, description=f"Does {name}.", input_schema=schema)


RICH = Tool(
    name="add",
    title="Addition ∑",
    description="Adds two numbers.",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1.0}},
        "required": ["a"],
        "additionalProperties": False,
        "x-vendor": {"kept": [None, 1, 2.5]},
    },
    output_schema={
        "type": "object",
        "properties": {"sum": {"type": "number"}},
        "required": ["sum"],
    },
    annotations=ToolAnnotations(title="Add", read_only_hint=True, idempotent_hint=True),
    icons=[Icon(src="https://example.com/add.png", mime_type="image/png", sizes=["48x48"])],
    _meta={"example.com/shelf": {"row": 3}},
)

tools = [
    _tool("echo", text="string"),
    RICH,
    _tool("every_block"),
    _tool("fail", reason="string"),
    _tool("refuse", code="integer"),
    _tool("count", steps="integer"),
    _tool("large", characters="integer"),
    _tool("about_the_call"),
    _tool("wait", key="string"),
    _tool("was_cancelled", key="string"),
    _tool("ask"),
    _tool("learn", name="string"),
    _tool("crash"),
]
announcements = InMemorySubscriptionBus()
begun: dict[str, anyio.Event] = {}
cancelled: dict[str, anyio.Event] = {}


def _text(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])


def _begun(key: str) -> anyio.Event:
    return begun.setdefault(key, anyio.Event())


def _cancelled(key: str) -> anyio.Event:
    return cancelled.setdefault(key, anyio.Event())


async def echo(context: Context, arguments: Arguments) -> CallToolResult:
    return _text(arguments["text"])


async def add(context: Context, arguments: Arguments) -> CallToolResult:
    total = arguments["a"] + arguments.get("b", 1.0)
    return CallToolResult(
        content=[TextContent(text=str(total))],
        structured_content={"sum": total, "unit": None},
        _meta={"example.com/took": 0.5},
    )


async def every_block(context: Context, arguments: Arguments) -> CallToolResult:
    note = Annotations(audience=["user"], priority=0.25)
    inside = TextResourceContents(uri="note://1", mime_type="text/plain", text="a note")
    return CallToolResult(
        content=[
            TextContent(text="ü 🙂 \u2028 \x00", annotations=note, _meta={"example.com/n": 1}),
            ImageContent(data=PNG, mime_type="image/png"),
            AudioContent(data=PNG, mime_type="audio/wav"),
            ResourceLink(name="link", uri="note://2", title="A link", size=7),
            EmbeddedResource(resource=inside),
        ]
    )


async def fail(context: Context, arguments: Arguments) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=arguments["reason"])], is_error=True)


async def refuse(context: Context, arguments: Arguments) -> CallToolResult:
    raise MCPError(arguments["code"], "not today", {"until": ["tomorrow", 9.5, None]})


async def count(context: Context, arguments: Arguments) -> CallToolResult:
    steps = arguments["steps"]
    for step in range(1, steps + 1):
        await context.session.report_progress(step, steps, f"step {step}")
    return _text(f"{steps} steps")


async def large(context: Context, arguments: Arguments) -> CallToolResult:
    return _text("é" * arguments["characters"])


async def about_the_call(context: Context, arguments: Arguments) -> CallToolResult:
    """What the server is told about its caller."""
    caller = context.session.client_params
    about = {
        "era": context.protocol_version,
        "client": caller.client_info.name if caller else None,
        "meta": {
            key: value
            for key, value in dict(context.meta or {}).items()
            if key.startswith("example.com/") or key == "traceparent"
        },
    }
    return CallToolResult(content=[], structured_content=about)


async def wait(context: Context, arguments: Arguments) -> CallToolResult:
    """Never answers. A first progress notice says that it has begun."""
    try:
        _begun(arguments["key"]).set()
        await context.session.report_progress(0, 1)
        await anyio.sleep_forever()
        return _text("woken")
    finally:
        _cancelled(arguments["key"]).set()


async def has_begun(context: Context, arguments: Arguments) -> CallToolResult:
    """For those who do not get progress; not in the list."""
    await _begun(arguments["key"]).wait()
    return _text("yes")


async def was_cancelled(context: Context, arguments: Arguments) -> CallToolResult:
    with anyio.move_on_after(PATIENCE):
        await _cancelled(arguments["key"]).wait()
        return _text("yes")
    return _text("no")


async def ask(context: Context, arguments: Arguments) -> CallToolResult | InputRequiredResult:
    """Asks its caller for a name, in the way of the era."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    if context.protocol_version == MODERN:
        form = ElicitRequestFormParams(message="Who?", requested_schema=schema)
        return InputRequiredResult(input_requests={"who": ElicitRequest(params=form)})
    answer = await context.session.elicit_form("Who?", schema)
    return _text(answer.action)


async def learn(context: Context, arguments: Arguments) -> CallToolResult:
    """From now on there is one more tool, and whoever listens is told."""
    tools.append(_tool(arguments["name"]))
    if context.protocol_version == MODERN:
        await announcements.publish(ToolsListChanged())
    else:
        await context.session.send_tool_list_changed()
    return _text("learned")


async def crash(context: Context, arguments: Arguments) -> CallToolResult:
    os._exit(3)


async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    """Five to a page."""
    start = int(params.cursor) if params and params.cursor else 0
    end = start + 5
    return ListToolsResult(
        tools=tools[start:end], next_cursor=str(end) if end < len(tools) else None
    )


async def call_tool(
    context: Context, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    if params.name not in {tool.name for tool in tools}:
        raise MCPError(-32602, f"Unknown tool: {params.name}")
    handler = globals().get(params.name)
    return await handler(context, params.arguments or {}) if handler else _text("newly learned")


async def main() -> None:
    server = Server(
        "workshop",
        version="1.2.3",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(announcements),
    )
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (receive, send):
        await server.run(receive, send, options)


if __name__ == "__main__":
    anyio.run(main)
