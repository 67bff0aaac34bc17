"""Hosts of the official SDK over HTTP, in both eras, with servers of either behind the workbench."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from mcp_workbench.core.spec import Snapshot
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Port, port
from tests.kit.results import LEGACY, MODERN
from tests.kit.sdk_host import by_identifier, client, text

MODES = ["legacy", "auto", MODERN]
modes = pytest.mark.parametrize("mode", MODES)
servers = pytest.mark.parametrize("server", ["old", "new"])


def both_eras(**more: Any) -> Snapshot:
    return snapshot(spec("old"), spec("new", "modern", era="modern"), **more)


def host_of(opened: Port, mode: str, path: str = "/mcp", **more: Any) -> Client:
    return client(f"http://{opened.name}{path}", mode=mode, **more)


def call(server: str, tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return by_identifier(server, tool, arguments, "dev")


def json_text(result: CallToolResult) -> Any:
    return json.loads(text(result))


@modes
@servers
async def test_a_tool_is_called_with_progress(mode: str, server: str) -> None:
    async with port(both_eras()) as opened, host_of(opened, mode) as host:
        assert host.protocol_version == (LEGACY if mode == "legacy" else MODERN)
        assert [t.name for t in (await host.list_tools()).tools] == [
            "open_toolbox",
            "use_tool",
            "search_tools",
        ]
        echo = await host.call_tool(*call(server, "echo", text="Grüße 🙂"))
        assert json_text(echo)["arguments"] == {"text": "Grüße 🙂"}
        heard: list[float] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        result = await host.call_tool(*call(server, "progress", n=50), progress_callback=hear)
        assert json_text(result) == 50
        assert heard == list(range(50))


@modes
async def test_flat_names_are_served_at_the_endpoint_of_their_toolbox(mode: str) -> None:
    async with (
        port(both_eras(mode="dynamic")) as opened,
        host_of(opened, mode, "/mcp/dev") as host,
    ):
        names = [tool.name for tool in (await host.list_tools()).tools]
        assert {"dev__old__echo", "dev__new__echo"} <= set(names)
        assert json_text(await host.call_tool("dev__old__echo", {"text": "x"}))["name"] == "echo"


@modes
async def test_a_cancelled_call_is_cancelled_at_its_server(mode: str) -> None:
    async with port(both_eras()) as opened, host_of(opened, mode) as host:
        await host.call_tool(*call("old", "stats"))
        with pytest.raises(MCPError):
            await host.call_tool(*call("old", "hang"), read_timeout_seconds=0.3)
        while not json_text(await host.call_tool(*call("old", "stats")))["cancelled"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # within the bound of `port`


@modes
async def test_an_unknown_toolbox_is_told_as_on_a_pipe(mode: str) -> None:
    async with port(both_eras()) as opened, host_of(opened, mode) as host:
        result = await host.call_tool("open_toolbox", {"toolbox_name": "bax"})
        assert result.is_error
        assert isinstance(result.content[0], TextContent)
        assert result.content[0].text == "Toolbox 'bax' not found"


@modes
async def test_sixteen_hosts_at_once(mode: str) -> None:
    async with port(both_eras()) as opened:

        async def visit(number: int) -> Any:
            async with host_of(opened, mode) as host:
                calls = [
                    host.call_tool(*call("old", "echo", text=f"{number}.{n}")) for n in range(4)
                ]
                return [json_text(r)["arguments"]["text"] for r in await asyncio.gather(*calls)]

        told = await asyncio.gather(*(visit(number) for number in range(16)))
        assert told == [[f"{number}.{n}" for n in range(4)] for number in range(16)]
