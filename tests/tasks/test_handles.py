"""Modern hosts with the extension get handles of tasks, whatever the era of the server."""

from __future__ import annotations

import pytest

from tests.kit.config import snapshot
from tests.kit.http_host import port
from tests.kit.results import text, use_tool
from tests.tasks.scenes import ASKABLE, ERAS, HAS_TASKS, LEGACY, YES, ModernHost, jobs


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_is_created_followed_and_has_its_result_inside(era: str) -> None:
    async with port(snapshot(jobs(era))) as bench:
        host = ModernHost(bench)
        created = await host.use("slow_compute", {"seconds": 0.2, "label": "sum"})
        ended = await host.ended(created["taskId"])
        failed = await host.ended((await host.use("failing_job"))["taskId"])
        broken = await host.ended((await host.use("protocol_error_job"))["taskId"])

    assert created["resultType"] == "task"
    assert created["taskId"].startswith("wbt1.")
    assert created["ttlMs"] == 60_000
    assert created["pollIntervalMs"] == 100
    assert {"ttl", "pollInterval", "task"} & created.keys() == set()
    assert ended["taskId"] == created["taskId"]
    assert ended["createdAt"] == created["createdAt"]
    assert (ended["resultType"], ended["status"]) == ("complete", "completed")
    assert text(ended["result"]) == "sum: done after 0.2 s"
    assert ended["result"]["resultType"] == "complete"
    assert not any("related-task" in key for key in ended["result"].get("_meta", {}))
    assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
    assert broken["status"] == "failed"
    assert broken["error"] == {"code": -32603, "message": "The job broke"}
    assert "result" not in broken


@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_a_task_are_asked_with_the_name_of_the_server(era: str) -> None:
    async with port(snapshot(jobs(era, scope="session"))) as bench:
        host = ModernHost(bench, {**HAS_TASKS, **ASKABLE})
        task = (await host.use("multi_input"))["taskId"]
        asked = await host.asking(task, 2)
        first, second = asked
        answer = {"action": "accept", "content": {"name": "Ada"}}
        update = {"taskId": task, "inputResponses": {first: answer, "unknown": {}}}
        acknowledged = await host.result("tasks/update", update)
        left = await host.asking(task, 1)
        await host.result("tasks/update", {"taskId": task, "inputResponses": {second: answer}})
        ended = await host.ended(task)

    messages = {question["params"]["message"] for question in asked.values()}
    assert messages == {"[dev/jobs] The first?", "[dev/jobs] The second?"}
    assert acknowledged["resultType"] == "complete"
    assert "taskId" not in acknowledged
    assert list(left) == [second]
    assert text(ended["result"]) == "Got Ada and Ada"


async def test_a_legacy_server_asks_only_what_the_host_declares() -> None:
    async with port(snapshot(jobs(LEGACY, scope="session"))) as bench:
        host = ModernHost(bench)
        created = await host.use("confirm_delete", {"filename": "a.txt"})
        ended = await host.ended(created["taskId"])

    assert text(ended["result"]) == "Kept a.txt"


@pytest.mark.parametrize("era", ERAS)
async def test_a_part_of_a_result_needs_the_result(era: str) -> None:
    part = use_tool("jobs", "required_job", {"what": "the job"})
    part["arguments"]["lines"] = "job"
    async with port(snapshot(jobs(era))) as bench:
        result = await ModernHost(bench).result("tools/call", part)

    assert "Did the job" in result["content"][0]["text"]
    assert result["resultType"] == "complete"


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_is_cancelled_once_and_again(era: str) -> None:
    async with port(snapshot(jobs(era))) as bench:
        host = ModernHost(bench)
        task = {"taskId": (await host.use("slow_compute", {"seconds": 600}))["taskId"]}
        answers = [await host.result("tasks/cancel", task) for _ in range(2)]
        ended = await host.ended(task["taskId"])
        statuses = await host.use("task_statuses")

    assert [answer["resultType"] for answer in answers] == ["complete", "complete"]
    assert all("status" not in answer for answer in answers)
    assert ended["status"] == "cancelled"
    assert text(statuses) == "cancelled"


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_without_the_extension_has_no_tasks(era: str) -> None:
    async with port(snapshot(jobs(era))) as bench:
        host = ModernHost(bench, {})
        result = await host.use("slow_compute", {"seconds": 0})
        refused = [
            await host.ask(method, {"taskId": "wbt1.x", "inputResponses": {}})
            for method in ("tasks/get", "tasks/update", "tasks/cancel")
        ]
        listening = {"notifications": {"taskIds": ["wbt1.x"]}}
        refused.append(await host.ask("subscriptions/listen", listening))

    assert text(result) == "computed: done after 0 s"
    assert {answer.status for answer in refused} == {400}
    needs = {"requiredCapabilities": HAS_TASKS}
    assert [(a.error["code"], a.error["data"]) for a in refused] == [(-32021, needs)] * 4


async def test_methods_of_the_other_revision_do_not_exist() -> None:
    async with port(snapshot(jobs(LEGACY))) as bench:
        host = ModernHost(bench)
        removed = [await host.error(f"tasks/{name}", {}) for name in ("list", "result")]

    assert [error["code"] for error in removed] == [-32601, -32601]


async def test_the_extension_is_declared_to_modern_hosts() -> None:
    async with port(snapshot(jobs(LEGACY))) as bench:
        found = await ModernHost(bench, {}).result("server/discover", {})

    assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    assert "tasks" not in found["capabilities"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_before_the_task_is_asked_before_the_handle(era: str) -> None:
    call = use_tool("jobs", "test_tool_with_task", {})
    async with port(snapshot(jobs(era, scope="session"))) as bench:
        host = ModernHost(bench, {**HAS_TASKS, **ASKABLE})
        asked = await host.result("tools/call", call)
        answers = {key: {**YES, "content": {"name": "Ada"}} for key in asked["inputRequests"]}
        back = {"inputResponses": answers, "requestState": asked["requestState"]}
        created = await host.result("tools/call", {**call, **back})
        ended = await host.ended(created["taskId"])

    assert asked["resultType"] == "input_required"
    assert created["resultType"] == "task"
    assert "requestState" not in created
    assert text(ended["result"]) == "Hello, Ada!"
