"""Version 1 of the Python SDK as a host: host_v1.py dynamic|proxy legacy SERVERS COMMAND...|URL.

Run by the interpreter that has this version. SERVERS are names with commas between.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from visit import Ear, Json, by_identifier, visit


class Old:
    """What `visit` asks of a host."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name: str, arguments: Json, told: list[float] | None = None) -> Json:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)

        hearing = hear if told is not None else None
        result = await self.session.call_tool(name, arguments, progress_callback=hearing)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def take_back(self, name: str, arguments: Json) -> None:
        """This SDK only stops waiting. Saying so to the server is left to the program."""
        begun = anyio.Event()
        number = self.session._request_id

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        async def give_up() -> None:
            with suppress(McpError):  # a version-1 server answers what was taken back
                await self.session.call_tool(name, arguments, progress_callback=hear)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give_up)
            await begun.wait()
            await self.cancel(number)
            tasks.cancel_scope.cancel()

    async def lose_patience(self, name: str, arguments: Json) -> str:
        """What a program hears that waits for a moment only."""
        number = self.session._request_id
        try:
            await self.session.call_tool(name, arguments, timedelta(seconds=0.2))
        except McpError as error:
            await self.cancel(number)
            return error.error.message
        return "answered"

    async def cancel(self, number: int) -> None:
        params = types.CancelledNotificationParams(requestId=number, reason="enough")
        await self.session.send_notification(
            types.ClientNotification(types.CancelledNotification(params=params))
        )

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return (await self.session.get_prompt(name, arguments)).messages[0].content.text

    async def read(self, uri: str) -> str:
        return (await self.session.read_resource(uri)).contents[0].text

    async def listen(self, uris: list[str]) -> None:
        await self.session.set_logging_level("info")
        for uri in uris:
            await self.session.subscribe_resource(uri)


@asynccontextmanager
async def road(command: str, *args: str) -> Any:
    if command.startswith("http:"):
        async with streamable_http_client(command) as (receive, send, _):
            yield receive, send
    else:
        params = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
        async with stdio_client(params) as streams:
            yield streams


async def main(style: str, mode: str, servers: str, *target: str) -> None:
    ear = Ear()

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        ear.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def sample(context: Any, params: Any) -> types.CreateMessageResult:
        yes = types.TextContent(type="text", text="yes")
        return types.CreateMessageResult(role="assistant", content=yes, model="m")

    async def log(params: Any) -> None:
        ear.logged.append(params.data)

    async def hear(message: Any) -> None:
        match getattr(message, "root", message):
            case types.ToolListChangedNotification():
                ear.lists += 1
            case types.ResourceUpdatedNotification(params=params):
                ear.updated.append(str(params.uri))

    seen: Json = {}
    try:
        async with (
            road(*target) as streams,
            ClientSession(
                *streams,
                elicitation_callback=elicit,
                sampling_callback=sample,
                logging_callback=log,
                message_handler=hear,
            ) as session,
        ):
            welcome = await session.initialize()
            host = Old(session)
            names = servers.split(",")
            seen |= await visit(host, ear, style, names)
            seen["patience"] = await host.lose_patience(
                *by_identifier(names[0], "wait", key="mine")
            )
            echo = await host.call(*by_identifier(names[0], "echo", text="still here"))
            seen["afterwards"] = echo["content"][0]["text"]
            seen["revision"] = welcome.protocolVersion
            seen["server"] = welcome.serverInfo.name
    except* anyio.BrokenResourceError:  # this SDK trips over whatever comes while it closes a pipe
        pass
    print(json.dumps(seen))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
