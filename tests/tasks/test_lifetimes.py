"""Tasks outlive their host's connection, reloads and restarts; they end with the process that runs them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from mcp_workbench.core.spec import HttpSettings, NamedToken
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.http_app import port_of
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec, url_entry, url_spec, write_config
from tests.kit.http_host import Port, port
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Json, text, use_tool
from tests.tasks.scenes import ERAS, HAS_TASKS, LEGACY, MODERN, POLL, ModernHost, bench, jobs

pytestmark = pytest.mark.usefixtures("forked_commands")

SLOW: Json = {"seconds": 600}
TOKENS = HttpSettings(
    tokens=(
        NamedToken("one", "token-of-one-0123456789"),
        NamedToken("other", "token-of-other-0123456789"),
    )
)


def bearer(name: str) -> str:
    return f"Bearer token-of-{name}-0123456789"


@pytest.mark.parametrize("era", ERAS)
async def test_only_its_principal_can_use_a_task(era: str) -> None:
    async with port(snapshot(jobs(era)), TOKENS) as opened:
        one = ModernHost(opened, authorization=bearer("one"))
        other = ModernHost(opened, authorization=bearer("other"))
        task = (await one.use("slow_compute", SLOW))["taskId"]
        changed = task[:-2] + ("AA" if task[-2:] != "AA" else "BB")
        unknown = [
            await other.error("tasks/get", {"taskId": task}),
            await other.error("tasks/cancel", {"taskId": task}),
            await other.error("tasks/update", {"taskId": task, "inputResponses": {}}),
            await one.error("tasks/get", {"taskId": changed}),
            await one.error("tasks/get", {"taskId": "task-1"}),
            await one.error("tasks/get", {}),
        ]
        still = await one.get(task)

    assert {error["code"] for error in unknown} == {-32602}
    assert still["status"] == "working"


async def test_a_list_has_the_tasks_of_its_principal_alone() -> None:
    call = {"name": "dev__jobs__slow_compute", "arguments": SLOW, "task": {}}
    async with port(snapshot(jobs(LEGACY), mode="dynamic"), TOKENS) as opened:
        one = await opened.open(path="/mcp/dev", authorization=bearer("one"))
        other = await opened.open(path="/mcp/dev", authorization=bearer("other"))
        created = (await one.result("tools/call", call))["task"]
        lists = [(await host.result("tasks/list"))["tasks"] for host in (one, other)]

    assert [[task["taskId"] for task in tasks] for tasks in lists] == [[created["taskId"]], []]


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_outlives_a_reload_of_other_servers(era: str) -> None:
    own = jobs(era, scope="session")
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(snapshot(own)) as gateway,
        port_of(gateway, "127.0.0.1", 0, HttpSettings()) as (_, server),
    ):
        host = ModernHost(Port(server.port))
        task = (await host.use("slow_compute", SLOW))["taskId"]
        gateway.reload(snapshot(own, spec("another")))
        still = await host.get(task)
        gateway.reload(snapshot(jobs(era, scope="session", idle_timeout=9.0)))
        tuned = await host.get(task)

    assert still["status"] == tuned["status"] == "working"


async def test_a_task_outlives_the_session_of_a_legacy_host() -> None:
    call = {"name": "dev__jobs__slow_compute", "arguments": {"seconds": 0.3}, "task": {"ttl": 9000}}
    own = jobs(LEGACY, scope="session")
    async with port(snapshot(own, mode="dynamic")) as opened:
        first = await opened.open(path="/mcp/dev")
        created = (await first.result("tools/call", call))["task"]
        await first.post(b"", "DELETE")
        second = await opened.open(path="/mcp/dev")
        result = await second.result("tasks/result", {"taskId": created["taskId"]})

    assert created["ttl"] == 9000
    assert text(result) == "computed: done after 0.3 s"


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_with_a_task_is_not_stopped_as_idle(era: str) -> None:
    async with port(snapshot(jobs(era, idle_timeout=0.1))) as opened:
        host = ModernHost(opened)
        task = (await host.use("slow_compute", {"seconds": 0.6}))["taskId"]
        await asyncio.sleep(0.7)  # nobody asks meanwhile, for longer than its idleTimeout
        ended = await host.get(task)

    assert text(ended["result"]) == "computed: done after 0.6 s"


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_forgets_a_task_after_its_ttl(era: str) -> None:
    async with port(snapshot(jobs(era, env=(("TASK_TTL", "200"),)))) as opened:
        host = ModernHost(opened)
        created = await host.use("slow_compute", {"seconds": 0})
        task = {"taskId": created["taskId"]}
        while "error" not in (answer := (await host.ask("tasks/get", task)).message):  # noqa: ASYNC110 - hosts poll
            await asyncio.sleep(POLL)

    assert created["ttlMs"] == 200
    assert answer["error"]["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
async def test_a_connection_is_kept_for_the_ttl_of_its_tasks_and_not_for_longer(era: str) -> None:
    own = jobs(era, scope="session", idle_timeout=0.1, env=(("TASK_TTL", "300"),))
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(snapshot(own)) as gateway,
        port_of(gateway, "127.0.0.1", 0, HttpSettings()) as (_, server),
    ):
        host = ModernHost(Port(server.port))
        task = (await host.use("slow_compute", {"seconds": 0}))["taskId"]
        (connection,) = gateway.connected
        await connection.gone()
        error = await host.error("tasks/get", {"taskId": task})

    assert connection.ended_at >= connection.needed_until
    assert error["code"] == -32602
    assert error["message"].startswith("Unknown task: it has expired")


def test_a_legacy_host_chooses_the_ttl_of_its_task(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as host:
        host.handshake()
        created = host.call("dev__jobs__slow_compute", {"seconds": 0}, task={"ttl": 200})["task"]
        task = {"taskId": created["taskId"]}
        while "error" not in (answer := host.request("tasks/get", task)):
            time.sleep(POLL)

    assert created["ttl"] == 200
    assert answer["error"]["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
async def test_tasks_end_with_the_process_that_runs_them(era: str) -> None:
    async with port(snapshot(jobs(era))) as opened:
        host = ModernHost(opened)
        created = await host.use("slow_compute", SLOW)
        task = {"taskId": created["taskId"]}
        await host.use("crash")
        ended = await host.get(task["taskId"])
        cancelled = await host.result("tasks/cancel", task)
        again = await host.use("task_statuses")

    assert ended["status"] == "failed"
    assert ended["createdAt"] == created["createdAt"]
    assert ended["error"]["message"].startswith("[dev/jobs] Error: ")
    assert "the task has ended with it, and may have run" in ended["error"]["message"]
    assert cancelled["resultType"] == "complete"
    assert text(again) == ""


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_of_a_remote_server_outlives_a_restart_of_the_workbench(era: str) -> None:
    """The remote server is a workbench, too, which is spoken to in either era."""
    far = snapshot(jobs(LEGACY), mode="dynamic")
    async with port(far) as remote:
        near = snapshot(url_spec(f"http://{remote.name}/mcp/dev", "jobs", headers=(), era=era))
        async with port(near) as before:
            call = use_tool("jobs", "dev__jobs__slow_compute", {"seconds": 0.3})
            created = await ModernHost(before).result("tools/call", call)
        async with port(near) as after:
            ended = await ModernHost(after).ended(created["taskId"])

    assert text(ended["result"]) == "computed: done after 0.3 s"


async def test_another_process_of_the_same_state_folder_answers(tmp_path: Path) -> None:
    far = snapshot(jobs(MODERN), mode="dynamic")
    meta = {"_meta": {META + "clientCapabilities": HAS_TASKS}}
    async with port(far) as remote:
        entry = url_entry(f"http://{remote.name}/mcp/dev")
        config = write_config(tmp_path, {"toolboxes": {"dev": {"mcpServers": {"jobs": entry}}}})

        def create() -> str:
            call = use_tool("jobs", "dev__jobs__slow_compute", {"seconds": 600})
            with PipeHost(config, modern=True) as host:
                return host.result("tools/call", {**call, **meta})["taskId"]

        def look(task: str) -> Json:
            with PipeHost(config, modern=True) as host:
                return host.result("tasks/get", {"taskId": task, **meta})

        task = await asyncio.to_thread(create)
        seen = await asyncio.to_thread(look, task)

    assert (seen["taskId"], seen["status"]) == (task, "working")


def test_another_process_says_that_it_does_not_run_the_server(tmp_path: Path) -> None:
    config = bench(tmp_path, MODERN)
    meta = {"_meta": {META + "clientCapabilities": HAS_TASKS}}
    with PipeHost(config, modern=True) as one, PipeHost(config, modern=True) as other:
        created = one.result("tools/call", {**use_tool("jobs", "slow_compute", SLOW), **meta})
        error = other.error("tasks/get", {"taskId": created["taskId"], **meta})

    assert error["code"] == -32602
    assert "belongs to another workbench" in error["message"]
