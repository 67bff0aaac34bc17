"""The everything server of the TypeScript SDK has a tool that runs as a task only, and may ask meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from shop import SECONDS, workbench_on_a_port

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


# In 2025-11-25 the package does not ask for the result of a task that asks something, and this server asks only then.
@pytest.mark.parametrize(("era", "asks"), [("legacy", False), ("modern", True)])
def test_the_official_package_for_tasks_is_a_host(
    era: str, asks: bool, tmp_path: Path, workplace: Path
) -> None:
    package = workplace / "node_modules" / "@modelcontextprotocol" / "server-everything"
    server = {"command": "node", "args": [str(package / "dist" / "index.js")], "scope": "session"}
    config = config_file(tmp_path, {"everything": server}, toolMode="dynamic")
    bench = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)]
    tool, asked = f"dev__everything__{RESEARCH}", {"topic": "python", "ambiguous": asks}
    with workbench_on_a_port(bench, dict(os.environ)) as url:
        done = subprocess.run(
            ["node", "tasks_host.mjs", era, f"{url}/dev", tool, json.dumps(asked)],
            cwd=workplace,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)

    about = "python (snake)" if asks else "python"
    assert text(seen["result"]).startswith(f"# Research Report: {about}")
    assert [question.startswith("[dev/everything] ") for question in seen["asked"]] == [True] * asks
    assert asks or seen["announced"]  # a modern host would have to subscribe
