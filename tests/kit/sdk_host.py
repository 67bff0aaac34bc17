"""Hosts of the official SDK: in front of the real command, of a port, or of a server itself."""

from __future__ import annotations

import os
import ssl
import sys
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.session import MessageHandlerFnT
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.kit.clock import PATIENCE
from tests.kit.config import write_config
from tests.kit.forked import command as forked_command
from tests.kit.processes import MARK, assert_all_gone
from tests.kit.results import LEGACY, MODERN, Json, use_tool
from tests.kit.servers import SDK

LEGACY_MODE = "legacy"
MODES = [LEGACY_MODE, MODERN, "auto"]
PRELOADED: list[str] = []  # a command that forks a server; `conftest` puts it here

OLD, NEW = "old", "new"  # the same server behind the workbench, met in either era
ERA = {OLD: LEGACY, NEW: MODERN}


def sdk_entry(script: str, *args: str, **more: Any) -> Json:
    """The entry of a server of the SDK: `workshop.py`, `library.py` or `stubborn.py`."""
    return {"command": sys.executable, "args": [str(SDK / script), *args], **more}


def forked(script: str, *args: str, **more: Any) -> Json:
    """The same server from a process that has imported the SDK already."""
    command, *words = PRELOADED
    return {"command": command, "args": [*words, script, *args], **more}


def both_eras(start: Callable[..., Json] = forked) -> dict[str, Json]:
    """The workshop twice, met in either era."""
    eras = {OLD: "legacy", NEW: "modern"}  # left alone, it would be met in the era of the host
    return {name: start("workshop.py", name, era=era) for name, era in eras.items()}


NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@asynccontextmanager
async def without_tls(url: str) -> AsyncGenerator[Any]:
    """The transport that a client has for a URL; its own would first read all authorities, for 20 ms."""
    timeout = httpx2.Timeout(30, read=300)  # as the SDK has them
    async with (
        httpx2.AsyncClient(verify=NO_AUTHORITIES, timeout=timeout) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


def client(place: Any, *, mode: str, **more: Any) -> Client:
    """A client of this URL or transport that keeps nothing and waits within bounds."""
    if isinstance(place, str) and place.startswith("http:"):
        place = without_tls(place)
    return Client(place, mode=mode, cache=None, read_timeout_seconds=PATIENCE, **more)


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

    Its servers stand in the toolbox `lab`; `logged` is all that it wrote to its stderr.
    """
    mark = mark or uuid.uuid4().hex
    marked = {name: {**server, "env": {MARK: mark}} for name, server in servers.items()}
    toolbox = {"description": "Under test", "mcpServers": marked}
    config = write_config(folder, {"toolMode": tools, "toolboxes": {"lab": toolbox}})
    env = {**os.environ, MARK: mark}
    program, *words = [*forked_command(env), "serve", "--config", str(config)]
    command = StdioServerParameters(command=program, args=words, env=env)
    with (folder / "stderr").open("w+") as complaints:
        transport = stdio_client(command, errlog=complaints)
        try:
            async with client(transport, mode=mode, message_handler=heard, **callbacks) as host:
                yield host
        finally:
            complaints.seek(0)
            stderr = complaints.read()
            print(stderr)  # shown with a failed test
    assert_all_gone(mark)
    assert stderr == logged


@asynccontextmanager
async def directly(folder: Path, *, mode: str) -> AsyncGenerator[Client]:
    """The same server without anything in between."""
    program, *words = [*PRELOADED, "workshop.py"]
    command = StdioServerParameters(command=program, args=words, env={})
    with (folder / "stderr").open("w+") as complaints:
        transport = stdio_client(command, errlog=complaints)
        async with client(transport, mode=mode) as host:
            yield host


class Notices:
    """What reached a host unasked: `hear` is its message handler."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self._waiting: list[Any] = []
        self._changed = anyio.Event()

    async def hear(self, message: Any) -> None:
        self.methods.append(message.method)
        self._waiting.append(message)
        self._changed.set()
        self._changed = anyio.Event()

    async def next(self, method: str) -> Any:
        """The first notice of this kind since the last time; all of its kind are seen then."""
        with anyio.fail_after(PATIENCE):
            while not (these := [one for one in self._waiting if one.method == method]):
                await self._changed.wait()
        self._waiting = [one for one in self._waiting if one not in these]
        return these[0]


def by_identifier(
    server: str, tool: str, arguments: Json | None = None, toolbox: str = "lab"
) -> tuple[str, Json]:
    """A call as proxy mode takes it."""
    params = use_tool(server, tool, arguments or {}, toolbox=toolbox)
    return params["name"], params["arguments"]


def by_flat_name(server: str, tool: str, arguments: Json | None = None) -> tuple[str, Json]:
    """A call as dynamic mode takes it."""
    return f"lab__{server}__{tool}", arguments or {}


async def taken_back(host: Client, name: str, arguments: Json) -> None:
    """Begin a call that reports progress, and cancel it then."""
    async with anyio.create_task_group() as tasks:

        async def begun(progress: float, total: float | None, message: str | None) -> None:
            tasks.cancel_scope.cancel()

        async def wait() -> None:
            await host.call_tool(name, arguments, progress_callback=begun)

        tasks.start_soon(wait)


def text(result: CallToolResult) -> str:
    """The text of a result that has one block."""
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
