"""Version 2 of the Python SDK as a host: host_v2.py dynamic|proxy MODE SERVERS COMMAND...|URL.

MODE is legacy, auto, or a revision to insist on. SERVERS are names with commas between.
"""

# pyright: basic
from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged
from visit import PATIENCE, Ear, Json, visit

MODERN = "2026-07-28"
warnings.simplefilter("ignore")  # levels and subscriptions are deprecated, and still there


class New:
    """What `visit` asks of a host."""

    def __init__(self, client: Client, ear: Ear, tasks: Any) -> None:
        self.client = client
        self.ear = ear
        self.tasks = tasks

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, arguments: Json, told: list[float] | None = None) -> Json:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if told is not None:
                told.append(progress)

        hearing = hear if told is not None else None
        result = await self.client.call_tool(name, arguments, progress_callback=hearing)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def take_back(self, name: str, arguments: Json) -> None:
        async with anyio.create_task_group() as tasks:

            async def begun(progress: float, total: float | None, message: str | None) -> None:
                tasks.cancel_scope.cancel()

            await self.client.call_tool(name, arguments, progress_callback=begun)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        content: Any = (await self.client.get_prompt(name, arguments)).messages[0].content
        return content.text

    async def read(self, uri: str) -> str:
        content: Any = (await self.client.read_resource(uri)).contents[0]
        return content.text

    async def listen(self, uris: list[str]) -> None:
        if self.client.protocol_version == MODERN:
            await self.tasks.start(self._hear_changes, uris)
            return
        await self.client.set_logging_level("info")
        for uri in uris:
            await self.client.subscribe_resource(uri)

    async def _hear_changes(self, uris: list[str], *, task_status: Any) -> None:
        listening = self.client.listen(tools_list_changed=True, resource_subscriptions=uris)
        async with listening as changes:
            task_status.started()
            async for change in changes:
                match change:
                    case ToolsListChanged():
                        self.ear.lists += 1
                    case ResourceUpdated(uri):
                        self.ear.updated.append(str(uri))


def is_news(record: logging.LogRecord) -> bool:
    """The SDK complains of an event that it has read, and can't hand on because we are leaving."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError)


async def main(*words: str) -> None:
    style, mode, servers, command, *args = words
    ear = Ear()

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        ear.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def sample(context: Any, params: Any) -> types.CreateMessageResult:
        yes = types.TextContent(text="yes")
        return types.CreateMessageResult(role="assistant", content=yes, model="m")

    async def log(params: Any) -> None:
        ear.logged.append(params.data)

    async def hear(message: Any) -> None:
        match getattr(message, "method", ""):
            case "notifications/tools/list_changed":
                ear.lists += 1
            case "notifications/resources/updated":
                ear.updated.append(str(message.params.uri))

    road: Any = command
    if not command.startswith("http:"):
        params = StdioServerParameters(command=command, args=args, env=dict(os.environ))
        road = stdio_client(params)
    client = Client(
        road,
        mode=mode,
        cache=None,
        elicitation_callback=elicit,
        sampling_callback=sample,
        logging_callback=log,
        message_handler=hear,
        log_level="info" if mode != "legacy" else None,
        read_timeout_seconds=2 * PATIENCE,
    )
    async with client, anyio.create_task_group() as tasks:
        seen = await visit(New(client, ear, tasks), ear, style, servers.split(","))
        seen["revision"] = client.protocol_version
        seen["server"] = client.server_info.name if client.server_info else None
        logging.getLogger("mcp.client.streamable_http").addFilter(is_news)  # from here on
        tasks.cancel_scope.cancel()
    print(json.dumps(seen))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
