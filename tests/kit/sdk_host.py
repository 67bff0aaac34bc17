"""The official SDK in front of the real command, with the official SDK behind it."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.session import MessageHandlerFnT
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

from tests.kit.clock import PATIENCE
from tests.kit.processes import MARK, assert_all_gone
from tests.kit.results import LEGACY, MODERN, Json
from tests.kit.servers import SDK

LEGACY_MODE = "legacy"
MODES = [LEGACY_MODE, MODERN, "auto"]
PRELOADED: list[str] = []  # a command that forks a server; `conftest` puts it here

OLD, NEW = "old", "new"  # the same server behind the workbench, met in either era
ERA = {OLD: LEGACY, NEW: MODERN}


def sdk_entry(script: str, *args: str, **more: Any) -> Json:
    """The configuration of a server of this folder, in a process of its own from the start."""
    return {"command": sys.executable, "args": [str(SDK / script), *args], **more}


def forked(script: str, *args: str, **more: Any) -> Json:
    """The same server from a process that has imported the SDK already."""
    command, *words = PRELOADED
    return {"command": command, "args": [*words, script, *args], **more}


def both_eras(start: Callable[..., Json] = forked) -> dict[str, Json]:
    return {OLD: start("workshop.py", OLD, era="legacy"), NEW: start("workshop.py", NEW)}


@asynccontextmanager
async def sdk_host(
    folder: Path,
    servers: dict[str, Json],
    *,
    mode: str,
    tools: str = "proxy",
    heard: MessageHandlerFnT | None = None,
    mark: str = "",
    logged: str = "",
    **callbacks: Any,
) -> AsyncGenerator[Client]:
    """A host of the SDK that talks to the real command; afterwards nothing of it is left.

    `logged` is all that it wrote to its stderr.
    """
    mark = mark or uuid.uuid4().hex
    marked = {name: {**server, "env": {MARK: mark}} for name, server in servers.items()}
    config = folder / "workbench-config.json"
    toolbox = {"description": "Under test", "mcpServers": marked}
    config.write_text(json.dumps({"toolMode": tools, "toolboxes": {"lab": toolbox}}))
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mcp_workbench", "serve", "--config", str(config)],
        env={**os.environ, MARK: mark},
    )
    with (folder / "stderr").open("w+") as complaints:
        transport = stdio_client(command, errlog=complaints)
        try:
            async with Client(
                transport,
                mode=mode,
                message_handler=heard,
                cache=None,
                read_timeout_seconds=PATIENCE,
                **callbacks,
            ) as host:
                yield host
        finally:
            complaints.seek(0)
            said = complaints.read()
            print(said)  # shown with a failed test
    assert_all_gone(mark)
    assert said == logged


@asynccontextmanager
async def directly(folder: Path, *, mode: str) -> AsyncGenerator[Client]:
    """The same server without anything in between."""
    command = StdioServerParameters(command=sys.executable, args=[str(SDK / "workshop.py")], env={})
    with (folder / "stderr").open("w+") as complaints:
        transport = stdio_client(command, errlog=complaints)
        async with Client(transport, mode=mode, cache=None, read_timeout_seconds=PATIENCE) as host:
            yield host


def by_identifier(server: str, tool: str, arguments: Json | None = None) -> tuple[str, Json]:
    """A call as proxy mode takes it."""
    identifier = {"toolbox": "lab", "server": server, "tool": tool}
    return "use_tool", {"tool": identifier, "arguments": arguments or {}}


def by_flat_name(server: str, tool: str, arguments: Json | None = None) -> tuple[str, Json]:
    """A call as dynamic mode takes it."""
    return f"lab__{server}__{tool}", arguments or {}


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def plain(model: Any) -> Json:
    """A model of the SDK as the JSON that it stands for, without what the modern era adds to a hop."""
    value: Json = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    value.pop("resultType", None)
    meta: Json = value.get("_meta") or {}
    meta.pop("io.modelcontextprotocol/serverInfo", None)
    if not meta:
        value.pop("_meta", None)
    return value
