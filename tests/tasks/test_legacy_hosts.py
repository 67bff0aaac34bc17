"""Hosts of 2025-11-25 that call tools by their names can ask for tasks themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, META, Json, text
from tests.tasks.scenes import ASKABLE, LEGACY, MODERN, YES, bench

pytestmark = pytest.mark.usefixtures("forked_commands")

RELATED = META + "related-task"
TASKS: Json = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


def opened(host: PipeHost, revision: str = "2025-11-25") -> Json:
    params = {**INITIALIZE, "capabilities": ASKABLE, "protocolVersion": revision}
    opening = host.result("initialize", params)
    host.notify("notifications/initialized")
    return opening


def test_a_legacy_host_has_the_handle_of_its_task(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as host:
        opening = opened(host)
        tools = {tool["name"]: tool for tool in host.result("tools/list")["tools"]}
        call = {"arguments": {"what": "this"}, "task": {"ttl": 12_345}}
        created = host.call("dev__jobs__required_job", **call)
        task = {"taskId": created["task"]["taskId"]}
        result = host.result("tasks/result", task)
        got = host.result("tasks/get", task)
        refused = host.error("tasks/cancel", task)
        endless = host.call("dev__jobs__slow_compute", {"seconds": 600}, task={})["task"]
        cancelled = host.result("tasks/cancel", {"taskId": endless["taskId"]})
        listed = host.result("tasks/list")["tasks"]

    assert opening["capabilities"]["tasks"] == TASKS
    assert tools["dev__jobs__required_job"]["execution"] == {"taskSupport": "optional"}
    assert tools["dev__jobs__greet"]["execution"] == {"taskSupport": "forbidden"}
    assert task["taskId"].startswith("wbt1.")
    assert created["task"]["ttl"] == 12_345
    assert text(result) == "Did this"
    assert result["_meta"] == {RELATED: task}
    assert (got["taskId"], got["status"]) == (task["taskId"], "completed")
    assert refused["code"] == -32602
    assert [(one["taskId"], one["status"]) for one in listed] == [
        (task["taskId"], "completed"),
        (endless["taskId"], "cancelled"),
    ]
    assert (cancelled["taskId"], cancelled["status"]) == (endless["taskId"], "cancelled")


def test_a_question_of_the_task_names_the_task(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as host:
        opened(host)
        created = host.call("dev__jobs__confirm_delete", {"filename": "a.txt"}, task={})
        task = {"taskId": created["task"]["taskId"]}
        fetching = host.ask("tasks/result", task)
        question = host.notice("elicitation/create")
        host.send({"id": question["id"], "result": YES})
        result = host.answer(fetching)["result"]

    assert question["params"]["message"] == "[dev/jobs] Delete a.txt?"
    assert question["params"]["_meta"] == {RELATED: task}
    assert text(result) == "Deleted a.txt"


def test_progress_comes_for_the_whole_task(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic")
    meta: Json = {"_meta": {"progressToken": "mine"}}
    with PipeHost(config, "--toolbox", "dev") as host:
        opened(host)
        created = host.call("dev__jobs__slow_compute", {"seconds": 0.4}, task={}, **meta)
        host.result("tasks/result", {"taskId": created["task"]["taskId"]})
        steps = [host.notice("notifications/progress")["params"] for _ in range(2)]

    assert [(step["progressToken"], step["progress"]) for step in steps] == [
        ("mine", 1),
        ("mine", 2),
    ]


def test_progress_of_so_many_tasks_comes_and_of_older_ones_no_more(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as host:
        opened(host)
        tasks: list[Json] = []
        for number in range(257):
            meta: Json = {"_meta": {"progressToken": number}}
            created = host.call("dev__jobs__multi_input", {}, task={}, **meta)
            tasks.append({"taskId": created["task"]["taskId"]})
        for task in tasks[:2]:
            fetching = host.ask("tasks/result", task)
            for _ in range(2):
                question = host.notice("elicitation/create")
                host.send({"id": question["id"], "result": {"action": "decline"}})
            assert text(host.answer(fetching)["result"]) == "Got nothing and nothing"
        step = host.notice("notifications/progress")["params"]

    assert step["progressToken"] == 1


@pytest.mark.parametrize(
    ("server_era", "revision"), [(MODERN, "2025-11-25"), (LEGACY, "2025-06-18")]
)
def test_where_there_are_no_tasks_a_call_that_asks_for_one_is_an_ordinary_call(
    tmp_path: Path, server_era: str, revision: str
) -> None:
    config = bench(tmp_path, server_era, toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as host:
        opened(host, revision)
        result = host.call("dev__jobs__slow_compute", {"seconds": 0}, task={"ttl": 1})

    assert text(result) == "computed: done after 0 s"


def test_in_proxy_mode_a_legacy_host_has_no_tasks(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path, LEGACY)) as host:
        opening = opened(host)
        error = host.error("tasks/get", {"taskId": "x"})

    assert "tasks" not in opening["capabilities"]
    assert error["code"] == -32601
