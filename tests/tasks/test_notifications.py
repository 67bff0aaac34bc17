"""Hosts are notified of changes of their tasks, in the way of their era, under the ids that they know."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_workbench.core.spec import HttpSettings
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.http_app import port_of
from mcp_workbench.server.task_watches import MOST_AT_ONCE
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec, url_spec
from tests.kit.http_host import Peer, Port, port
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Json, text, use_tool
from tests.tasks.scenes import (
    ASKABLE,
    ERAS,
    HAS_TASKS,
    LEGACY,
    MODERN,
    POLL,
    YES,
    ModernHost,
    bench,
    jobs,
)
from tests.tasks.test_legacy_hosts import opened
from tests.tasks.test_lifetimes import SLOW, TOKENS, bearer

pytestmark = pytest.mark.usefixtures("forked_commands")

SUBSCRIPTION = META + "subscriptionId"
STATUS = "notifications/tasks/status"
SILENT = (("NO_TASK_NOTICES", "1"),)


async def acknowledged(stream: Peer) -> list[str]:
    """The tasks that a stream is about to announce changes of."""
    message = await stream.message()
    assert message["method"] == "notifications/subscriptions/acknowledged"
    return message["params"]["notifications"].get("taskIds", [])


async def announced(stream: Peer) -> Json:
    """The next state of a task on a stream."""
    message = await stream.message()
    assert message["method"] == "notifications/tasks"
    return message["params"]


async def announced_as(stream: Peer, status: str) -> Json:
    while (state := await announced(stream))["status"] != status:
        pass
    return state


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_hears_of_each_state_of_its_task(era: str) -> None:
    async with port(snapshot(jobs(era, scope="session"))) as bench:
        host = ModernHost(bench, {**HAS_TASKS, **ASKABLE})
        task = (await host.use("confirm_delete", {"filename": "a.txt"}))["taskId"]
        stream, id = await host.listen(task)
        agreed = await acknowledged(stream)
        asking = await announced_as(stream, "input_required")
        answers = dict.fromkeys(asking["inputRequests"], YES)
        await host.result("tasks/update", {"taskId": task, "inputResponses": answers})
        ended = await announced_as(stream, "completed")
        got = await host.get(task)

    (question,) = asking["inputRequests"].values()
    assert agreed == [task]
    assert asking["taskId"] == ended["taskId"] == task
    assert question["params"]["message"] == "[dev/jobs] Delete a.txt?"
    assert text(ended["result"]) == "Deleted a.txt"
    assert ended.pop("_meta") == {SUBSCRIPTION: id}
    assert ended == {key: got[key] for key in got if key not in ("resultType", "_meta")}
    assert {"ttl", "pollInterval", "resultType"} & ended.keys() == set()


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_that_has_ended_is_announced_at_once(era: str) -> None:
    async with port(snapshot(jobs(era))) as bench:
        host = ModernHost(bench)
        task = (await host.use("protocol_error_job"))["taskId"]
        await host.ended(task)
        stream, _ = await host.listen(task)
        agreed = await acknowledged(stream)
        ended = await announced(stream)

    assert agreed == [task]
    assert (ended["status"], ended["error"]["message"]) == ("failed", "The job broke")


async def test_a_legacy_server_that_announces_nothing_is_looked_at() -> None:
    own = jobs(LEGACY, env=SILENT)
    async with port(snapshot(own)) as bench:
        host = ModernHost(bench)
        task = (await host.use("slow_compute", {"seconds": 0.3}))["taskId"]
        stream, _ = await host.listen(task)
        agreed = await acknowledged(stream)
        states = [await announced(stream), await announced(stream)]

    assert agreed == [task]
    assert [state["status"] for state in states] == ["working", "completed"]


async def test_what_a_modern_server_does_not_announce_is_not_acknowledged() -> None:
    async with port(snapshot(jobs(MODERN, env=SILENT))) as bench:
        host = ModernHost(bench)
        task = (await host.use("slow_compute", SLOW))["taskId"]
        stream, _ = await host.listen(task)
        agreed = await acknowledged(stream)

    assert agreed == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_hears_of_its_own_tasks_only(era: str) -> None:
    async with port(snapshot(jobs(era)), TOKENS) as bench:
        one = ModernHost(bench, authorization=bearer("one"))
        other = ModernHost(bench, authorization=bearer("other"))
        mine = (await one.use("slow_compute", {"seconds": 0.3}))["taskId"]
        theirs = (await other.use("slow_compute", SLOW))["taskId"]
        changed = theirs[:-2] + ("AA" if theirs[-2:] != "AA" else "BB")
        stream, _ = await one.listen(theirs, mine, changed, "task-1", mine)
        agreed = await acknowledged(stream)
        await other.result("tasks/cancel", {"taskId": theirs})
        states = [await announced(stream), await announced(stream)]

    assert agreed == [mine]
    assert {state["taskId"] for state in states} == {mine}
    assert [state["status"] for state in states] == ["working", "completed"]


@pytest.mark.parametrize("era", ERAS)
async def test_two_hosts_hear_of_one_task_and_one_of_them_leaves(era: str) -> None:
    async with port(snapshot(jobs(era))) as bench:
        host = ModernHost(bench)
        first = (await host.use("slow_compute", SLOW))["taskId"]
        second = (await host.use("slow_compute", SLOW))["taskId"]
        leaving, _ = await host.listen(first)
        await announced_as_working(leaving)
        staying, _ = await host.listen(first, second)
        agreed = await acknowledged(staying)
        states = [await announced(staying) for _ in range(2)]
        leaving.close()
        for task in (first, second):
            await host.result("tasks/cancel", {"taskId": task})
        states += [await announced(staying) for _ in range(2)]

    assert agreed == [first, second]
    assert {state["taskId"]: state["status"] for state in states[2:]} == {
        first: "cancelled",
        second: "cancelled",
    }


async def announced_as_working(stream: Peer) -> None:
    await acknowledged(stream)
    assert (await announced(stream))["status"] == "working"


@pytest.mark.parametrize("era", ERAS)
async def test_the_end_of_its_process_is_announced(era: str) -> None:
    async with port(snapshot(jobs(era))) as bench:
        host = ModernHost(bench)
        task = (await host.use("slow_compute", SLOW))["taskId"]
        stream, _ = await host.listen(task)
        await announced_as_working(stream)
        await host.use("crash")
        ended = await announced(stream)
        again, _ = await host.listen(task)
        agreed, later = await acknowledged(again), await announced(again)

    assert agreed == [task]
    for state in (ended, later):
        assert state["status"] == "failed"
        assert "the task has ended with it" in state["error"]["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_reload_of_other_servers_does_not_end_a_subscription(era: str) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(snapshot(jobs(era))) as gateway,
        port_of(gateway, "127.0.0.1", 0, HttpSettings()) as (_, server),
    ):
        host = ModernHost(Port(server.port))
        task = (await host.use("slow_compute", SLOW))["taskId"]
        stream, _ = await host.listen(task)
        await announced_as_working(stream)
        gateway.reload(snapshot(jobs(era), spec("another")))
        await host.result("tasks/cancel", {"taskId": task})
        ended = await announced(stream)
        stream.close()

    assert ended["status"] == "cancelled"


async def test_a_task_of_a_remote_server_is_announced_after_a_restart() -> None:
    far = snapshot(jobs(MODERN), mode="dynamic")
    async with port(far) as remote:
        near = snapshot(url_spec(f"http://{remote.name}/mcp/dev", "jobs", headers=()))
        async with port(near) as before:
            call = use_tool("jobs", "dev__jobs__slow_compute", SLOW)
            task = (await ModernHost(before).result("tools/call", call))["taskId"]
        async with port(near) as after:
            host = ModernHost(after)
            stream, _ = await host.listen(task)
            await announced_as_working(stream)
            await host.result("tasks/cancel", {"taskId": task})
            ended = await announced(stream)

    assert (ended["taskId"], ended["status"]) == (task, "cancelled")


@pytest.mark.parametrize("era", ERAS)
async def test_many_tasks_and_large_results_are_announced(era: str) -> None:
    long = "x" * (2 << 20)  # notifications of other kinds may not be that long
    async with port(snapshot(jobs(era))) as bench:
        host = ModernHost(bench)
        slow = [(await host.use("slow_compute", SLOW))["taskId"] for _ in range(20)]
        large = (await host.use("slow_compute", {"seconds": 0.5, "label": long}))["taskId"]
        stream, _ = await host.listen(*slow, large)
        agreed = await acknowledged(stream)
        ended = await announced_as(stream, "completed")

    assert agreed == [*slow, large]
    assert ended["taskId"] == large
    assert text(ended["result"]) == f"{long}: done after 0.5 s"


async def test_too_many_tasks_are_refused() -> None:
    async with port(snapshot(jobs(MODERN))) as bench:
        ids = [f"task-{number}" for number in range(65)]
        listening = {"notifications": {"taskIds": ids}}
        error = await ModernHost(bench).error("subscriptions/listen", listening)

    assert error["code"] == -32602


async def test_a_principal_has_so_many_subscriptions_and_room_again_when_they_end() -> None:
    async with port(snapshot(jobs(MODERN))) as bench:
        host = ModernHost(bench)
        tasks = [(await host.use("slow_compute", SLOW))["taskId"] for _ in range(3)]
        await acknowledged((await host.listen(tasks[0]))[0])
        watches = bench.front.gateway.tasks.watches
        (principal,) = watches
        watches[principal] = MOST_AT_ONCE - 1
        full, _ = await host.listen(*tasks[1:])
        agreed = [await acknowledged(full)]
        full.close()
        while watches[principal] == MOST_AT_ONCE:  # noqa: ASYNC110 - until it has noticed
            await asyncio.sleep(POLL)
        agreed.append(await acknowledged((await host.listen(tasks[2]))[0]))

    assert agreed == [[tasks[1]], [tasks[2]]]


async def test_subscriptions_that_are_asked_for_at_once_are_counted_together() -> None:
    async with port(snapshot(jobs(MODERN))) as bench:
        host = ModernHost(bench)
        tasks = [(await host.use("slow_compute", SLOW))["taskId"] for _ in range(8)]
        await acknowledged((await host.listen(tasks[0]))[0])
        watches = bench.front.gateway.tasks.watches
        (principal,) = watches
        watches[principal] = MOST_AT_ONCE - 2
        opened_streams = await asyncio.gather(*(host.listen(task) for task in tasks[1:]))
        agreed = [await acknowledged(stream) for stream, _ in opened_streams]

    assert sum(map(len, agreed)) == 2


# Legacy hosts


def test_a_legacy_host_hears_of_its_task(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as host:
        opened(host)
        created = host.call("dev__jobs__confirm_delete", {"filename": "a.txt"}, task={})["task"]
        asking = host.notice(STATUS)["params"]
        fetching = host.ask("tasks/result", {"taskId": created["taskId"]})
        question = host.notice("elicitation/create")
        host.send({"id": question["id"], "result": YES})
        states = [host.notice(STATUS)["params"] for _ in range(2)]
        host.answer(fetching)

    assert {state["taskId"] for state in (asking, *states)} == {created["taskId"]}
    assert asking["status"] == "input_required"
    assert [state["status"] for state in states] == ["working", "completed"]
    assert states[-1]["ttl"] == created["ttl"]


def test_a_legacy_host_hears_of_the_end_of_the_process(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as host:
        opened(host)
        created = host.call("dev__jobs__slow_compute", SLOW, task={})["task"]
        host.request("tools/call", {"name": "dev__jobs__crash", "arguments": {}})
        ended = host.notice(STATUS)["params"]

    assert (ended["taskId"], ended["status"]) == (created["taskId"], "failed")
    assert "the task has ended with it" in ended["statusMessage"]


async def test_legacy_hosts_hear_of_their_own_tasks_only() -> None:
    call: Json = {"name": "dev__jobs__slow_compute", "arguments": SLOW, "task": {}}
    async with port(snapshot(jobs(LEGACY), mode="dynamic"), TOKENS) as bench:
        one = await bench.open(path="/mcp/dev", authorization=bearer("one"))
        other = await bench.open(path="/mcp/dev", authorization=bearer("other"))
        third = await bench.open(path="/mcp/dev", authorization=bearer("one"))
        streams = [await host.listen() for host in (one, other, third)]
        mine = (await one.result("tools/call", call))["task"]
        theirs = (await other.result("tools/call", call))["task"]
        await third.result("tasks/get", {"taskId": mine["taskId"]})
        await one.result("tasks/cancel", {"taskId": mine["taskId"]})
        await other.result("tasks/cancel", {"taskId": theirs["taskId"]})
        heard = [(await stream.message())["params"] for stream in streams]

    expected = [mine["taskId"], theirs["taskId"], mine["taskId"]]
    assert [state["taskId"] for state in heard] == expected
    assert {state["status"] for state in heard} == {"cancelled"}


def test_a_host_without_tasks_hears_of_none(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path, LEGACY)) as host:
        opened(host)
        result = host.use("jobs", "required_job")
        host.result("ping")

    assert text(result) == "Did it"
    assert not [line for line in host.lines if b"notifications/tasks" in line]
