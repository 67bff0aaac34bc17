"""The official SDK in front of the real command, with the official SDK behind it."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

Json = dict[str, Any]

SERVERS = Path(__file__).parent / "servers"
LEGACY = "legacy"
MODERN = "2026-07-28"
NEWEST_LEGACY = "2025-11-25"
MODES = [LEGACY, MODERN, "auto"]
MARK = "MCP_WORKBENCH_TEST"  # whoever has this variable was started by one certain test
PATIENCE = 20.0  # seconds; no single scene takes longer

OLD, NEW = "old", "new"  # the same server behind the workbench, met in either era
ERA = {OLD: NEWEST_LEGACY, NEW: MODERN}


def entry(script: str, **more: Any) -> Json:
    """The configuration of a server of this folder."""
    return {"command": sys.executable, "args": [str(SERVERS / script)], **more}


def both_eras() -> dict[str, Json]:
    return {OLD: entry("workshop.py", era="legacy"), NEW: entry("workshop.py")}


@asynccontextmanager
async def workbench(
    folder: Path,
    servers: dict[str, Json],
    *,
    mode: str,
    tools: str = "proxy",
    heard: Callable[[Any], Awaitable[None]] | None = None,
) -> AsyncGenerator[Client]:
    """A host of the SDK that talks to the real command; afterwards nothing of it is left."""
    mark = uuid.uuid4().hex
    marked = {name: {**server, "env": {MARK: mark}} for name, server in servers.items()}
    config = folder / "workbench-config.json"
    toolbox = {"description": "Under test", "mcpServers": marked}
    config.write_text(json.dumps({"toolMode": tools, "toolboxes": {"lab": toolbox}}))
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mcp_workbench", "serve", "--config", str(config)],
        env={MARK: mark},
    )
    with (folder / "stderr").open("w+") as complaints:
        transport = stdio_client(command, errlog=complaints)
        async with Client(transport, mode=mode, message_handler=heard, cache=None) as host:
            yield host
        await all_gone(mark)
        complaints.seek(0)
        assert complaints.read() == ""


@asynccontextmanager
async def directly(folder: Path, *, mode: str) -> AsyncGenerator[Client]:
    """The same server without anything in between."""
    command = StdioServerParameters(
        command=sys.executable, args=[str(SERVERS / "workshop.py")], env={}
    )
    with (folder / "stderr").open("w+") as complaints:
        transport = stdio_client(command, errlog=complaints)
        async with Client(transport, mode=mode, cache=None) as host:
            yield host


def running(mark: str) -> list[str]:
    """The command lines of the living processes that carry this mark."""
    sought = f"{MARK}={mark}".encode()
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if sought in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


async def all_gone(mark: str, seconds: float = 1.0) -> None:
    """The workbench has ended, so its servers have: what was killed may still be leaving."""
    until = time.monotonic() + seconds
    while (left := running(mark)) and time.monotonic() < until:
        await anyio.sleep(0.02)
    assert not left, f"still running: {left}"


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


def has_proc() -> bool:
    return os.path.isdir("/proc/self")  # noqa: PTH112 - a question to the system
