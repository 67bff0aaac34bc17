"""A server made with the official SDK that offers prompts and resources, and a tool to change them."""

# pyright: basic
from __future__ import annotations

import warnings
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    CompleteResult,
    Completion,
    ElicitRequest,
    ElicitRequestFormParams,
    EmptyResult,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)

Context = ServerRequestContext[Any, Any]

MODERN = "2026-07-28"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
prompts = [
    Prompt(name="greet", description="Greets", arguments=[PromptArgument(name="who")]),
    Prompt(name="ask"),
]
announcements = InMemorySubscriptionBus()
warnings.simplefilter("ignore")  # subscriptions and levels are deprecated, and still there


def _prompt(text: str) -> GetPromptResult:
    return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text=text))])


async def list_prompts(context: Context, params: Any) -> ListPromptsResult:
    return ListPromptsResult(prompts=prompts)


async def get_prompt(context: Context, params: Any) -> GetPromptResult | InputRequiredResult:
    if params.name != "ask":
        return _prompt(f"Hello {(params.arguments or {}).get('who')}")
    if context.protocol_version != MODERN:
        answer = await context.session.elicit_form("Who?", SCHEMA)
        return _prompt(f"Hello {(answer.content or {}).get('name')}")
    if not params.input_responses:
        form = ElicitRequestFormParams(message="Who?", requested_schema=SCHEMA)
        return InputRequiredResult(
            input_requests={"who": ElicitRequest(params=form)}, request_state="my own"
        )
    if params.request_state != "my own":
        raise MCPError(-32602, f"not my state: {params.request_state}")
    return _prompt(f"Hello {params.input_responses['who'].content['name']}")


async def list_resources(context: Context, params: Any) -> ListResourcesResult:
    return ListResourcesResult(resources=[Resource(name="a book", uri="book://one")])


async def list_templates(context: Context, params: Any) -> ListResourceTemplatesResult:
    template = ResourceTemplate(name="pages", uri_template="page://{number}")
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Context, params: Any) -> ReadResourceResult:
    if not params.uri.startswith(("book://one", "page://")):
        raise MCPError(
            -32602 if context.protocol_version == MODERN else -32002, "no", {"uri": params.uri}
        )
    await context.session.send_log_message("info", {"reading": params.uri}, "library")
    content = TextResourceContents(uri=params.uri, text=f"This is {params.uri}")
    return ReadResourceResult(contents=[content])


async def complete(context: Context, params: Any) -> CompleteResult:
    return CompleteResult(completion=Completion(values=[params.argument.value + "!"]))


async def take_note(context: Context, params: Any) -> EmptyResult:
    return EmptyResult()


async def list_tools(context: Context, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="change", input_schema={"type": "object"})])


async def change(context: Context, params: Any) -> CallToolResult:
    """One prompt more, and another text in the book."""
    prompts.append(Prompt(name="new"))
    if context.protocol_version == MODERN:
        await announcements.publish(PromptsListChanged())
        await announcements.publish(ResourceUpdated("book://one"))
    else:
        await context.session.send_prompt_list_changed()
        await context.session.send_resource_updated("book://one")
    return CallToolResult(content=[])


async def main() -> None:
    server = Server(
        "library",
        version="1",
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_completion=complete,
        on_subscribe_resource=take_note,
        on_unsubscribe_resource=take_note,
        on_set_logging_level=take_note,
        on_list_tools=list_tools,
        on_call_tool=change,
        on_subscriptions_listen=ListenHandler(announcements),
    )
    options = server.create_initialization_options(NotificationOptions(prompts_changed=True))
    async with stdio_server() as (receive, send):
        await server.run(receive, send, options)


if __name__ == "__main__":
    anyio.run(main)
