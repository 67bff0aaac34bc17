"""The official SDK in front of the real command, with the official SDK behind it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.session import MessageHandlerFnT
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

Json = dict[str, Any]

SERVERS = Path(__file__).parent / "servers"
LEGACY = "legacy"
MODERN = "2026-07-28"
NEWEST_LEGACY = "2025-11-25"
MODES = [LEGACY, MODERN, "auto"]
MARK = "MCP_WORKBENCH_TEST"  # whoever has this variable was started by one certain test
PRELOADED: list[str] = []  # a command that forks a server; `conftest` puts it here
PATIENCE = 20.0  # seconds until an answer must have come

OLD, NEW = "old", "new"  # the same server behind the workbench, met in either era
ERA = {OLD: NEWEST_LEGACY, NEW: MODERN}


def entry(script: str, *args: str, **more: Any) -> Json:
    """The configuration of a server of this folder, in a process of its own from the start."""
    return {"command": sys.executable, "args": [str(SERVERS / script), *args], **more}


def forked(script: str, *args: str, **more: Any) -> Json:
    """The same server from a process that has imported the SDK already."""
    command, *words = PRELOADED
    return {"command": command, "args": [*words, script, *args], **more}


def both_eras(start: Callable[..., Json] = forked) -> dict[str, Json]:
    return {OLD: start("workshop.py", OLD, era="legacy"), NEW: start("workshop.py", NEW)}


@asynccontextmanager
async def workbench(
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
    command = StdioServerParameters(
        command=sys.executable, args=[str(SERVERS / "workshop.py")], env={}
    )
    with (folder / "stderr").open("w+") as complaints:
        transport = stdio_client(command, errlog=complaints)
        async with Client(transport, mode=mode, cache=None, read_timeout_seconds=PATIENCE) as host:
            yield host


def running(mark: str) -> dict[int, str]:
    """The living processes that carry this mark, with their command lines."""
    sought = f"{MARK}={mark}".encode()
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if sought in (process / "environ").read_bytes().split(b"\0"):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(process.name)] = command
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def assert_all_gone(mark: str) -> None:
    """The workbench has ended, so its servers have: what was killed may still be leaving."""
    until = time.monotonic() + PATIENCE
    while (left := running(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    assert left == {}


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
