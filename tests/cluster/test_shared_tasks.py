"""Tasks of servers on another replica than the one that created them."""

from __future__ import annotations

import json
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.blocking_hosts import Stream, hosts_of
from tests.cluster.scenes import LIMIT, TOKENS, Cluster, ReplicaProcess, cluster
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE
from tests.kit.http_host import ACCEPT, modern_headers, rpc
from tests.kit.results import Message, enveloped, use_tool
from tests.kit.valkey import free_port
from tests.tasks.scenes import HAS_TASKS, LEGACY, META, TERMINAL, tasks_entry

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

DECLARED = {"_meta": {META + "clientCapabilities": HAS_TASKS}}
LONG = {"seconds": 600}


def far_end(folder: Path) -> ReplicaProcess:
    """A workbench of its own, which is the server behind a URL."""
    folder.mkdir()
    path = folder / "workbench-config.json"
    boxes = {"dev": {"mcpServers": {"jobs": tasks_entry(LEGACY)}}}
    path.write_text(json.dumps({"toolboxes": boxes, "toolMode": "dynamic"}), "utf-8")
    path.chmod(0o600)
    return ReplicaProcess(folder, path, {"HOME": str(folder), "PATH": "/usr/bin:/bin"}, free_port())


def create(host: HttpHost, server: str, tool: str, arguments: Any) -> str:
    params = {**use_tool(server, tool, arguments), **(DECLARED if host.modern else {})}
    answer = host.request("tools/call", params)
    return answer["result"]["taskId"]


def get(host: HttpHost, task: str, method: str = "tasks/get") -> Any:
    return host.request(method, {"taskId": task, **DECLARED})


def status(host: HttpHost, task: str) -> str:
    answer = get(host, task)
    return answer["result"]["status"] if "result" in answer else answer["error"]["message"]


def wait_for(host: HttpHost, task: str, *wanted: str) -> Any:
    """The task, once it has one of these states."""
    end = time.monotonic() + PATIENCE
    while status(host, task) not in wanted:
        assert time.monotonic() < end, get(host, task)
        time.sleep(0.1)
    return get(host, task)["result"]


def listed(host: HttpHost) -> set[str]:
    return {task["taskId"] for task in host.request("tasks/list", {})["result"]["tasks"]}


def create_legacy(host: HttpHost, server: str) -> str:
    call = {"name": f"dev__{server}__dev__jobs__slow_compute", "arguments": LONG, "task": {}}
    return host.request("tools/call", call)["result"]["task"]["taskId"]


def test_tasks_go_on_when_the_replica_that_created_them_was_killed(tmp_path: Path) -> None:
    far = far_end(tmp_path / "far end")
    remote = {"url": f"http://127.0.0.1:{far.port}/mcp/dev", "era": "legacy"}
    boxes = {"dev": {"mcpServers": {"near": tasks_entry(LEGACY), "far": remote}}}
    far.start()
    try:
        far.ready()
        with cluster(tmp_path, 2, toolboxes=boxes) as running:
            check_tasks(running)
    finally:
        far.kill()


def check_tasks(running: Cluster) -> None:
    with hosts_of(running) as hosts:
        maker, other, stranger = hosts.modern(0), hosts.modern(1), hosts.modern(1, "bob")
        near = create(maker, "near", "slow_compute", LONG)
        away = create(maker, "far", "dev__jobs__slow_compute", LONG)
        assert status(other, near) == status(other, away) == "working"
        assert acknowledged(running, 1, near) == [near]
        assert status(stranger, near) == status(stranger, away) == "Unknown task"
        short = create(maker, "near", "slow_compute", {"seconds": 0.1})
        ended = wait_for(other, short, *TERMINAL)
        assert "computed: done" in ended["result"]["content"][0]["text"]

        running.replicas[0].kill()

        assert status(other, away) == "working"
        assert get(other, away, "tasks/cancel")["result"]["resultType"] == "complete"
        assert status(other, away) == "cancelled"
        failed = wait_for(other, near, "failed")
        assert "the replica that ran this server has ended" in failed["error"]["message"]
        assert "may have run" in failed["error"]["message"]
        assert status(stranger, near) == status(stranger, away) == "Unknown task"


def acknowledged(running: Cluster, replica: int, task: str) -> list[str]:
    """The tasks of whose changes a replica notifies alice, if she wants to hear of this one."""
    params: Message = {"notifications": {"taskIds": [task]}, **DECLARED}
    headers = {
        "content-type": "application/json",
        "accept": ACCEPT,
        "authorization": f"Bearer {TOKENS['alice']}",
        **modern_headers("subscriptions/listen", params),
    }
    connection = HTTPConnection("127.0.0.1", running.replicas[replica].port, timeout=PATIENCE)
    with closing(connection):
        body = rpc("subscriptions/listen", enveloped(params), 9)
        connection.request("POST", "/mcp", body, headers)
        message = next(Stream(connection.getresponse()).messages())
    return message["params"]["notifications"].get("taskIds", [])


def test_a_list_of_tasks_has_those_of_killed_replicas(tmp_path: Path) -> None:
    far = far_end(tmp_path / "far end")
    remote = {"url": f"http://127.0.0.1:{far.port}/mcp/dev", "era": "legacy"}
    more: dict[str, Any] = {
        "toolboxes": {"dev": {"mcpServers": {"far": remote}}},
        "toolMode": "dynamic",
    }
    far.start()
    try:
        far.ready()
        with cluster(tmp_path, 2, **more) as running, hosts_of(running) as hosts:
            maker, other, stranger = hosts.legacy(0), hosts.legacy(1), hosts.legacy(1, "bob")
            for host in (maker, other, stranger):
                call = {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
                assert "result" in host.request("tools/call", call)
            task = create_legacy(maker, "far")
            assert listed(maker) == listed(other) == {task}

            running.replicas[0].kill()

            assert listed(other) == {task}
            assert listed(stranger) == set()
            assert get(other, task)["result"]["status"] == "working"
    finally:
        far.kill()
