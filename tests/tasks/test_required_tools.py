"""Tools that run as tasks only work for every host: the workbench waits for the task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_workbench import Workbench
from mcp_workbench.config.load import load_config
from mcp_workbench.transport.tasks import task_scope
from tests.kit.config import tool
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Json, error_code, text, use_tool
from tests.tasks.scenes import ASKABLE, ERAS, LEGACY, MODERN, YES, bench

pytestmark = pytest.mark.usefixtures("forked_commands")

# A modern host without the extension gets the error of a modern server (-32021).
PAIRS = [(LEGACY, LEGACY), (LEGACY, MODERN), (MODERN, LEGACY)]


def begun_job(host: PipeHost) -> int:
    """A call of a tool that requires a task, once the task runs; it takes ten minutes."""
    call = host.begin_use("jobs", "required_job", {"seconds": 600}, _meta={"progressToken": "mine"})
    host.notice("notifications/progress")
    return call


@pytest.mark.parametrize(("host_era", "server_era"), PAIRS)
def test_a_tool_that_requires_a_task_returns_its_result(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with PipeHost(bench(tmp_path, server_era), modern=host_era == MODERN) as host:
        host.handshake()
        done = host.use("jobs", "required_job", {"what": "the job"})
        failed = host.use("jobs", "failing_job")

    assert text(done) == "Did the job"
    assert "_meta" not in done or not any("task" in key for key in done["_meta"])
    assert text(failed) == "The job failed"
    assert failed["isError"]


@pytest.mark.parametrize("server_era", ERAS)
def test_a_question_inside_the_task_reaches_a_legacy_host(tmp_path: Path, server_era: str) -> None:
    with PipeHost(bench(tmp_path, server_era)) as host:
        opening = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "h", "version": "1"}}
        host.result("initialize", {**opening, "capabilities": ASKABLE})
        host.notify("notifications/initialized")
        call = host.begin_use("jobs", "required_question", {"filename": "a.txt"})
        question = host.notice("elicitation/create")
        host.send({"id": question["id"], "result": YES})
        result = host.answer(call)["result"]

    assert question["params"]["message"] == "[dev/jobs] Delete a.txt?"
    assert "_meta" not in question["params"]
    assert text(result) == "Deleted a.txt"


def test_a_question_inside_the_task_reaches_a_modern_host(tmp_path: Path) -> None:
    declared: Json = {"_meta": {"io.modelcontextprotocol/clientCapabilities": ASKABLE}}
    call = {**use_tool("jobs", "required_question", {"filename": "a.txt"}), **declared}
    with PipeHost(bench(tmp_path, LEGACY), modern=True) as host:
        asked = host.result("tools/call", call)
        answers = dict.fromkeys(asked["inputRequests"], YES)
        back: Json = {"inputResponses": answers, "requestState": asked["requestState"]}
        result = host.result("tools/call", {**call, **back})

    assert asked["resultType"] == "input_required"
    assert text(result) == "Deleted a.txt"


def test_progress_of_the_task_reaches_the_host(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path, LEGACY)) as host:
        host.handshake()
        call = host.begin_use("jobs", "required_job", _meta={"progressToken": "mine"})
        steps = [host.notice("notifications/progress")["params"] for _ in range(2)]
        result = host.answer(call)["result"]

    assert [(step["progressToken"], step["progress"]) for step in steps] == [
        ("mine", 1),
        ("mine", 2),
    ]
    assert text(result) == "Did it"


@pytest.mark.parametrize("server_era", ERAS)
def test_a_cancelled_call_cancels_its_task(tmp_path: Path, server_era: str) -> None:
    with PipeHost(bench(tmp_path, server_era)) as host:
        host.handshake()
        call = begun_job(host)
        host.notify("notifications/cancelled", {"requestId": call})
        statuses = host.use("jobs", "task_statuses")

    assert text(statuses) == "cancelled"


@pytest.mark.parametrize("server_era", ERAS)
def test_a_task_that_takes_too_long_is_cancelled(tmp_path: Path, server_era: str) -> None:
    config = bench(tmp_path, server_era, entry={"timeout": 0.5})
    with PipeHost(config) as host:
        host.handshake()
        late = host.use("jobs", "required_job", {"seconds": 600})
        statuses = host.use("jobs", "task_statuses")

    assert error_code(late) == "timeout"
    assert "timed out after 0.5 s" in late["content"][0]["text"]
    assert text(statuses) == "cancelled"


@pytest.mark.parametrize("server_era", ERAS)
def test_a_call_ends_with_the_process_that_runs_its_task(tmp_path: Path, server_era: str) -> None:
    with PipeHost(bench(tmp_path, server_era)) as host:
        host.handshake()
        call = begun_job(host)
        host.use("jobs", "crash")
        lost = host.answer(call)["result"]

    assert error_code(lost) == "server_exited"
    assert "the call may have run" in lost["content"][0]["text"]


@pytest.mark.parametrize("server_era", ERAS)
async def test_a_task_under_way_finishes_although_its_server_is_replaced(
    tmp_path: Path, server_era: str
) -> None:
    snapshot = load_config(bench(tmp_path, server_era))
    other = load_config(bench(tmp_path, server_era, entry={"env": {"OTHER": "1"}}))
    async with asyncio.timeout(30), Workbench(snapshot) as workbench, task_scope() as scope:
        started = asyncio.Event()
        work = workbench.use_tool(
            tool("jobs", "required_job"), {"seconds": 0.5}, on_progress=lambda _: started.set()
        )
        call = scope.start(work, "call")
        await started.wait()
        workbench.reload(other)
        result = await call

    assert text(result) == "Did it"


@pytest.mark.parametrize("server_era", ERAS)
async def test_python_programs_get_the_result_of_a_task(tmp_path: Path, server_era: str) -> None:
    snapshot = load_config(bench(tmp_path, server_era))
    async with asyncio.timeout(30), Workbench(snapshot) as workbench:
        result = await workbench.use_tool(tool("jobs", "required_job"), {"what": "it well"})

    assert text(result) == "Did it well"


def test_a_modern_host_learns_that_a_modern_server_wants_tasks(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path, MODERN), modern=True) as host:
        error = host.error("tools/call", use_tool("jobs", "required_job"))

    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {
        "extensions": {"io.modelcontextprotocol/tasks": {}}
    }
