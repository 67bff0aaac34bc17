"""A server with tools that run as tasks behind the real command, and hosts with and without tasks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.kit.clock import eventually
from tests.kit.config import write_config
from tests.kit.results import META, Json
from tests.kit.servers import EVERYTHING

LEGACY, MODERN = "legacy", "modern"
ERAS = (LEGACY, MODERN)
TASKS = META + "tasks"
HAS_TASKS: Json = {"extensions": {TASKS: {}}}
ASKABLE: Json = {"elicitation": {}}
YES: Json = {"action": "accept", "content": {"confirm": True}}
TERMINAL = ("completed", "failed", "cancelled")


def tasks_entry(era: str, **more: Any) -> Json:
    return {"command": sys.executable, "args": [EVERYTHING, "--era", era], **more}


def bench(folder: Path, era: str, *, entry: Json | None = None, **more: Any) -> Path:
    """A file with the server `jobs` in the toolbox `dev`."""
    servers = {"jobs": tasks_entry(era, **(entry or {}))}
    return write_config(folder, {"toolboxes": {"dev": {"mcpServers": servers}}, **more})


def ended(get: Any, task_id: str) -> Json:
    """The task once it has ended; `get` is a host's way to ask."""
    seen: Json = {}

    def is_over() -> bool:
        seen.update(get("tasks/get", {"taskId": task_id}))
        return seen["status"] in TERMINAL

    eventually(is_over, "the task ends")
    return seen


def asking(get: Any, task_id: str, questions: int = 1) -> Json:
    """The open questions of a task, once there are so many."""
    seen: Json = {}

    def asks() -> bool:
        seen.clear()
        seen.update(get("tasks/get", {"taskId": task_id}))
        return len(seen.get("inputRequests", {})) == questions

    eventually(asks, "the task asks")
    return seen
