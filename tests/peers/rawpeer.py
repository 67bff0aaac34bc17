"""A peer that speaks raw JSON over a pipe: as a host of the workbench, or of a server itself."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit.clock import PATIENCE
from tests.kit.command import COMMAND
from tests.kit.config import write_config
from tests.kit.processes import MARK, assert_all_gone
from tests.kit.results import INITIALIZE, Json, enveloped

LEAVING = 5.0  # seconds for a workbench to end with all its servers
LINE = 64 << 20  # bytes; asyncio's own limit is 64 KiB


class Refused(Exception):
    """The peer answered with a JSON-RPC error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


class Peer:
    """A process to talk to, one question at a time. Numbers keep their spelling."""

    def __init__(self, process: asyncio.subprocess.Process, *, modern: bool) -> None:
        self.process = process
        self.modern = modern
        self.notices: list[Json] = []
        self._last = 0

    async def ask(self, method: str, params: Json | None = None) -> Json:
        self._last += 1
        await self._say({"id": self._last, "method": method, "params": self._stamped(params or {})})
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await self._hear()
                if "method" not in message and message["id"] == ("number", str(self._last)):
                    break
                await self._take_aside(message)
        if "error" in message:
            raise Refused(as_python(message["error"]))
        return message["result"]

    async def begin(self, method: str, params: Json) -> None:
        """Send a request whose answer nobody waits for."""
        self._last += 1
        await self._say({"id": self._last, "method": method, "params": self._stamped(params)})

    async def notice(self, method: str) -> Json:
        """The first notification of this kind, which may have come already."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for notice in self.notices:
                    if notice.get("method") == method:
                        return notice
                await self._take_aside(await self._hear())

    async def open(self) -> Json:
        """Agree on the era; what the peer says of itself."""
        if self.modern:
            return await self.ask("server/discover")
        welcome = await self.ask("initialize", INITIALIZE)
        await self._say({"method": "notifications/initialized"})
        return welcome

    async def tools(self) -> list[Json]:
        """Every definition, through all pages."""
        found: list[Json] = []
        params: Json = {}
        while True:
            page = await self.ask("tools/list", params)
            found += page["tools"]
            if not page.get("nextCursor"):
                return found
            params = {"cursor": page["nextCursor"]}

    async def call(self, tool: str, arguments: Json, *, token: str = "") -> Json:
        """The result; with a token the progress notices are kept."""
        meta = {"_meta": {"progressToken": token}} if token else {}
        return await self.ask("tools/call", {"name": tool, "arguments": arguments, **meta})

    async def call_and_take_back(self, tool: str, arguments: Json) -> int:
        """Begin a call, and cancel it at once; its number."""
        self._last += 1
        params = self._stamped({"name": tool, "arguments": arguments})
        await self._say({"id": self._last, "method": "tools/call", "params": params})
        taken_back = {"requestId": self._last, "reason": "changed my mind"}
        await self._say({"method": "notifications/cancelled", "params": taken_back})
        return self._last

    def progress(self, token: str) -> list[int]:
        """How far the call with this token said it was, each time."""
        params = [as_python(notice["params"]) for notice in self.notices if "params" in notice]
        return [p["progress"] for p in params if p.get("progressToken") == token]

    def _stamped(self, params: Json) -> Json:
        return enveloped(params) if self.modern else params

    async def _take_aside(self, message: Json) -> None:
        if "id" in message and "method" in message:  # it asks us; we have declared nothing
            error = {"code": -32601, "message": "Method not found"}
            await self._say({"id": as_python(message["id"]), "error": error})
        else:
            self.notices.append(message)

    async def _say(self, message: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self.process.stdin.drain()

    async def _hear(self) -> Json:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the peer has hung up"
        return exact(line)

    async def leave(self) -> float:
        """Close its input and wait for its end; the seconds that it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        since = time.monotonic()
        self.process.stdin.close()
        async with asyncio.timeout(LEAVING):
            await self.process.stdout.read()
            await self.process.wait()
        return time.monotonic() - since


@asynccontextmanager
async def running(
    argv: Sequence[str | Path], folder: Path, *, modern: bool, env: Json | None = None
) -> AsyncGenerator[Peer]:
    """A started and opened peer. It is ended with the block if it has not left by itself."""
    with (folder / "stderr").open("w+b") as complaints:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=complaints,
            limit=LINE,
            env={**os.environ, **(env or {})},
        )
        try:
            peer = Peer(process, modern=modern)
            await peer.open()
            yield peer
        finally:
            complaints.seek(0)
            print(complaints.read().decode("utf-8", "replace"))  # shown with a failed test
            if process.returncode is None:
                process.kill()
                await process.communicate()


@asynccontextmanager
async def workbench(
    folder: Path, servers: dict[str, Json], *, modern: bool, tools: str, mark: str
) -> AsyncGenerator[Peer]:
    """The real command with these servers in a toolbox `peers`; it must end well, and alone."""
    config = peers_config(folder, servers, tools=tools, mark=mark)
    command = [*COMMAND, "serve", "--config", config]
    async with running(command, folder, modern=modern, env={MARK: mark}) as host:
        yield host
        await host.leave()
        assert host.process.returncode == 0
    assert_all_gone(mark)


def peers_config(folder: Path, servers: dict[str, Json], *, tools: str, mark: str) -> Path:
    marked = {
        name: {**server, "env": {**server.get("env", {}), MARK: mark}}
        if "command" in server
        else server
        for name, server in servers.items()
    }
    toolboxes = {"peers": {"description": "Real servers", "mcpServers": marked}}
    return write_config(folder, {"toolMode": tools, "toolboxes": toolboxes})


def exact(text: str | bytes) -> Any:
    """JSON in which 1, 1.0 and true are three different things."""

    def number(spelled: str) -> tuple[str, str]:
        return ("number", spelled)

    return json.loads(text, parse_int=number, parse_float=number)


def as_python(value: Any) -> Any:
    """Numbers as Python has them."""
    match value:
        case ("number", str(spelled)):
            return json.loads(spelled)
        case dict():
            return {key: as_python(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [as_python(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
