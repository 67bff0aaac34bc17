"""A minimal gateway on the typed layers of the official SDK: `Server` in front, `Client` behind.

python sdk_gateway.py --config FILE
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import mcp_types as types
import msgspec
from mcp import Client, StdioServerParameters
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TEXT = {"type": "string"}
TOOL = {"toolbox": TEXT, "server": TEXT, "tool": TEXT}
META_TOOLS = [
    types.Tool(
        name="open_toolbox",
        description="Open a toolbox and list its tools.",
        input_schema={"type": "object", "properties": {"toolbox_name": TEXT}},
    ),
    types.Tool(
        name="use_tool",
        description="Use a tool of an opened toolbox.",
        input_schema={
            "type": "object",
            "properties": {
                "tool": {"type": "object", "properties": TOOL},
                "arguments": {"type": "object"},
            },
        },
    ),
]


class Gateway:
    """Toolboxes of clients. They live in one task, as the SDK's scopes demand, and open one by one."""

    def __init__(self, config):
        self.toolboxes = msgspec.json.decode(config)["toolboxes"]
        self.clients, self.opened = {}, {}
        self.ask, self.asked = anyio.create_memory_object_stream(8)

    async def keep_connections(self):
        async with AsyncExitStack() as connections:
            async for toolbox, done in self.asked:
                if toolbox not in self.opened:
                    self.opened[toolbox] = await self.connect(toolbox, connections)
                done.set()

    async def connect(self, toolbox, connections):
        tools = []
        for name, spec in self.toolboxes[toolbox]["mcpServers"].items():
            parameters = StdioServerParameters(command=spec["command"], args=spec["args"])
            client = await connections.enter_async_context(Client(parameters))
            self.clients[toolbox, name] = client
            tools += [
                {**tool.model_dump(by_alias=True, exclude_none=True), "server": name}
                for tool in (await client.list_tools()).tools
            ]
        return msgspec.json.encode({"toolbox": toolbox, "tools": tools}).decode()

    async def list_tools(self, context, params):
        return types.ListToolsResult(tools=META_TOOLS)

    async def call_tool(self, context, params):
        if params.name == "use_tool":
            tool = params.arguments["tool"]
            client = self.clients[tool["toolbox"], tool["server"]]
            return await client.call_tool(tool["tool"], params.arguments.get("arguments"))
        toolbox, done = params.arguments["toolbox_name"], anyio.Event()
        await self.ask.send((toolbox, done))
        await done.wait()
        text = types.TextContent(type="text", text=self.opened[toolbox])
        return types.CallToolResult(content=[text])


async def main():
    gateway = Gateway(Path(sys.argv[-1]).read_bytes())  # noqa: ASYNC240  nothing else runs yet
    server = Server("sdk-gateway", on_list_tools=gateway.list_tools, on_call_tool=gateway.call_tool)
    async with anyio.create_task_group() as background:
        background.start_soon(gateway.keep_connections)
        async with stdio_server() as (receive, send):
            await server.run(receive, send, server.create_initialization_options())
        background.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
