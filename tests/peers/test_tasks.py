"""The everything server of the TypeScript SDK has a tool that runs as a task only, and may ask meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.kit.clock import eventually
from tests.kit.config import config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, META, Json, text, use_tool

pytestmark = pytest.mark.peers

CAN: Json = {"elicitation": {}, "extensions": {META + "tasks": {}}}
ANSWER: Json = {"action": "accept", "content": {"interpretation": "snake"}}
RESEARCH = "simulate-research-query"


@contextmanager
def host(folder: Path, workplace: Path, *, modern: bool) -> Generator[PipeHost]:
    package = workplace / "node_modules" / "@modelcontextprotocol" / "server-everything"
    server = {"command": "node", "args": [str(package / "dist" / "index.js")]}
    with PipeHost(config_file(folder, {"everything": server}), modern=modern) as opened:
        if not modern:
            opened.result("initialize", {**INITIALIZE, "capabilities": {"elicitation": {}}})
            opened.notify("notifications/initialized")
        yield opened


def test_a_host_without_tasks_gets_its_report(tmp_path: Path, workplace: Path) -> None:
    asked = {"topic": "python", "ambiguous": True}
    with host(tmp_path, workplace, modern=False) as opened:
        call = opened.begin_use("everything", RESEARCH, asked)
        question = opened.notice("elicitation/create")
        opened.send({"id": question["id"], "result": ANSWER})
        result = opened.answer(call)["result"]

    assert question["params"]["message"].startswith("[dev/everything] ")
    assert text(result).startswith("# Research Report: python (snake)")


def test_a_modern_host_has_the_handle_of_the_task(tmp_path: Path, workplace: Path) -> None:
    meta: Json = {"_meta": {META + "clientCapabilities": CAN}}
    asked = {"topic": "python", "ambiguous": True}
    with host(tmp_path, workplace, modern=True) as opened:
        call = {**use_tool("everything", RESEARCH, asked), **meta}
        task: Json = {"taskId": opened.result("tools/call", call)["taskId"], **meta}
        seen: Json = {}

        def is_in(status: str) -> bool:
            seen.update(opened.result("tasks/get", task))
            return seen["status"] == status

        eventually(lambda: is_in("input_required"), "the task asks")
        answers = dict.fromkeys(seen["inputRequests"], ANSWER)
        opened.result("tasks/update", {**task, "inputResponses": answers})
        eventually(lambda: is_in("completed"), "the task ends")

    assert text(seen["result"]).startswith("# Research Report: python (snake)")
