"""A server with tools that run as tasks behind the real command, and hosts with and without tasks."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from tests.kit.config import lean, program_entry, write_config
from tests.kit.http_host import Answer, Peer, Port
from tests.kit.results import META, Json, use_tool
from tests.kit.servers import EVERYTHING

LEGACY, MODERN = "legacy", "modern"
ERAS = (LEGACY, MODERN)
TASKS = META + "tasks"
HAS_TASKS: Json = {"extensions": {TASKS: {}}}
ASKABLE: Json = {"elicitation": {}}
YES: Json = {"action": "accept", "content": {"confirm": True}}
POLL = 0.05  # seconds between two looks at a task
TERMINAL = ("completed", "failed", "cancelled")


def tasks_entry(era: str, **more: Any) -> Json:
    return program_entry(EVERYTHING, era, **more)


def bench(folder: Path, era: str, *, entry: Json | None = None, **more: Any) -> Path:
    """A file with the server `jobs` in the toolbox `dev`."""
    servers = {"jobs": tasks_entry(era, **(entry or {}))}
    return write_config(folder, {"toolboxes": {"dev": {"mcpServers": servers}}, **more})


# In the test's own loop


def jobs(era: str, **settings: Any) -> ServerSpec:
    """The server `jobs` of the toolbox `dev`."""
    env: Any = settings.pop("env", ())
    target = StdioCommand(sys.executable, lean(EVERYTHING, era), env=env)
    return ServerSpec(ServerAddress("dev", "jobs"), target, **settings)


class ModernHost:
    """A modern host over HTTP, which declares tasks unless told otherwise."""

    def __init__(self, port: Port, declared: Json = HAS_TASKS, **headers: str) -> None:
        self._port = port
        self._meta = {META + "clientCapabilities": declared}
        self._headers = headers

    async def ask(self, method: str, params: Json) -> Answer:
        params = {**params, "_meta": self._meta}
        return await self._port.ask_modern(method, params, **self._headers)

    async def result(self, method: str, params: Json) -> Json:
        return (await self.ask(method, params)).result

    async def error(self, method: str, params: Json) -> Json:
        return (await self.ask(method, params)).error

    async def use(self, tool: str, arguments: Json | None = None) -> Json:
        return await self.result("tools/call", use_tool("jobs", tool, arguments or {}))

    async def get(self, task_id: str) -> Json:
        return await self.result("tasks/get", {"taskId": task_id})

    async def ended(self, task_id: str) -> Json:
        """The task once it has ended."""
        while (task := await self.get(task_id))["status"] not in TERMINAL:  # noqa: ASYNC110 - hosts poll
            await asyncio.sleep(POLL)
        return task

    async def asking(self, task_id: str, questions: int = 1) -> Json:
        """The questions of a task, once it has so many."""
        while len(asked := (await self.get(task_id)).get("inputRequests", {})) != questions:  # noqa: ASYNC110
            await asyncio.sleep(POLL)
        return asked

    async def listen(self, *task_ids: str) -> tuple[Peer, Any]:
        """A stream of changes of these tasks, whose head has been read, and the id of its request."""
        params = {"notifications": {"taskIds": list(task_ids)}, "_meta": self._meta}
        body, headers = self._port.modern("subscriptions/listen", params, **self._headers)
        peer = await self._port.connect()
        peer.send(self._port.request(body, headers))
        status, _ = await peer.head()
        assert status == 200
        return peer, json.loads(body)["id"]
