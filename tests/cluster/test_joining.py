"""Replicas that do not fit: another key, an address that leads elsewhere, a clock that is wrong. Two clusters on one engine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest

from tests.cluster.blocking_hosts import Hosts, hosts_of
from tests.cluster.proxies import Proxy, proxy_to
from tests.cluster.raw_hosts import RawHost
from tests.cluster.scenes import LIMIT, Cluster, ReplicaProcess, cluster
from tests.kit.clock import eventually
from tests.kit.config import quick_entry
from tests.kit.results import META, Message, use_tool
from tests.kit.valkey import free_port

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

OTHER_KEY = "f" * 32
AWAY = 2.0  # seconds
SAME_NAME = "under the same name, with another key"


def said(running: Cluster, *words: str, **environ: str) -> str:
    """All that a command prints."""
    done = running.command(*words, **environ)
    return done.stdout + done.stderr


def test_another_key_is_refused_under_the_same_name_and_another_cluster_under_another(
    tmp_path: Path,
) -> None:
    boxes = {"dev": {"mcpServers": {"quick": quick_entry("quick")}}}
    with cluster(tmp_path, 2, later=1, toolboxes=boxes) as running, hosts_of(running) as hosts:
        second = running.replicas[1]
        second.environ["CLUSTER_KEY"] = OTHER_KEY
        second.start()
        assert SAME_NAME in second.refused()
        assert "WB-CONN-108" in second.log.read_text()
        for words in (("check", "--connect"), ("doctor",)):
            assert SAME_NAME in said(running, *words, CLUSTER_KEY=OTHER_KEY)
            assert SAME_NAME not in said(running, *words)

        second.environ["CLUSTER_NAME"] = "others"
        second.start()
        second.ready()
        first_host, second_host = hosts.legacy(0), hosts.legacy(1)
        for host in (first_host, second_host):
            assert "result" in host.request("tools/call", use_tool("quick", "echo", {"nonce": "n"}))
        hosts.move(first_host, 1)
        answer = first_host.request("tools/call", use_tool("quick", "echo", {"nonce": "n"}))
        assert "not found" in answer["error"]["message"]
        names = re.findall(rb"\n(\w+):", running.engine.command("KEYS", "*"))
        assert set(names) == {b"replicas", b"others"}


def test_two_clusters_with_one_key_are_two_by_their_name(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, later=1) as running, hosts_of(running) as hosts:
        second = running.replicas[1]
        second.environ["CLUSTER_NAME"] = "others"
        second.start()
        second.ready()
        host = hosts.legacy(0)
        hosts.move(host, 1)
        answer = host.request("tools/call", use_tool("quick", "echo", {"nonce": "n"}))
        assert "not found" in answer["error"]["message"]


def with_internal_ports(running: Cluster) -> None:
    for replica in running.replicas:
        replica.environ["CLUSTER_LISTEN"] = f"127.0.0.1:{free_port()}"


def test_an_address_that_leads_to_another_replica_or_to_nobody_is_refused(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, later=2) as running:
        with_internal_ports(running)
        first, second = running.replicas
        first.start()
        first.ready()
        second.environ["CLUSTER_ADVERTISE"] = first.environ["CLUSTER_LISTEN"]
        second.start()
        assert "something else answers" in second.refused()
        second.environ["CLUSTER_ADVERTISE"] = f"127.0.0.1:{free_port()}"
        second.start()
        assert "connection refused" in second.refused()
        second.environ["CLUSTER_ADVERTISE"] = ""
        second.environ["CLUSTER_LISTEN"] = first.environ["CLUSTER_LISTEN"]
        second.start()
        assert "address already in use" in second.refused()
        assert first.status("/readyz") == 200


async def at_a_replica_that_is_cut_off(
    cut_off: ReplicaProcess, other: ReplicaProcess, proxy: Proxy
) -> None:
    own, opened = RawHost(cut_off.port, "o", "alice"), RawHost(other.port, "x", "alice")
    elsewhere, theirs = RawHost(other.port, "e", "alice"), RawHost(cut_off.port, "t", "alice")
    for host, moved in ((own, elsewhere), (opened, theirs)):
        await host.open()
        moved.session = host.session
        await host.echo()
        await moved.echo()
    proxy.close()
    for host in (own, theirs):
        await host.echo()
    # Connections from the replica that can't be reached still work.
    assert own.outcomes == {"ok": 2}, own.strange
    assert theirs.outcomes == {"ok": 2}, theirs.strange
    # Where the owner can't be asked, that is said in bounded time. The first call may break with its connection.
    for _ in range(2):
        if not elsewhere.outcomes["http 503"]:
            await elsewhere.echo()
    assert elsewhere.outcomes["ok"] == elsewhere.outcomes["http 503"] == 1, elsewhere.strange
    assert elsewhere.outcomes["hangs"] == 0, elsewhere.strange
    assert "can't be reached" in other.log.read_text()
    proxy.is_closed = False
    await elsewhere.echo()
    assert elsewhere.outcomes["ok"] == 2, elsewhere.strange
    for host in (own, elsewhere, theirs, opened):
        host.close()


def test_a_replica_that_others_can_no_longer_reach_serves_its_own_hosts(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, later=2) as running:
        with_internal_ports(running)
        cut_off, other = running.replicas
        port = int(cut_off.environ["CLUSTER_LISTEN"].partition(":")[2])
        with proxy_to(port) as proxy:
            cut_off.environ["CLUSTER_ADVERTISE"] = f"127.0.0.1:{proxy.port}"
            for replica in (cut_off, other):
                replica.start()
                replica.ready()
            asyncio.run(at_a_replica_that_is_cut_off(cut_off, other, proxy))


CAN_ASK: Message = {META + "clientCapabilities": {"elicitation": {}}}
CLOCK = """
import time
real = time.time
time.time = lambda: real() + 60
"""


def test_a_clock_that_is_wrong_is_said_and_breaks_no_question(tmp_path: Path) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK)
    with cluster(tmp_path, 2, later=1) as running, hosts_of(running) as hosts:
        second = running.replicas[1]
        second_clock = {"PYTHONPATH": str(tmp_path / "clock")}
        second.environ |= second_clock
        second.start()
        second.ready()
        eventually(
            lambda: "60 seconds ahead of the engine's" in second.log.read_text(), "it is logged"
        )
        assert "ahead of the engine's" in said(running, "doctor", **second_clock)
        for asked_at, answered_at in ((0, 1), (1, 0)):
            ask_and_answer(hosts, asked_at, answered_at)


def test_a_replica_that_has_just_started_gets_the_answers_to_its_questions(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, later=1) as running, hosts_of(running) as hosts:
        for _ in range(3):
            running.replicas[1].start()
            running.replicas[1].ready()
            ask_and_answer(hosts, 1, 0)  # which has not heard of it yet
            running.replicas[1].kill()


def test_an_answer_waits_until_the_engine_can_tell_who_asked(tmp_path: Path) -> None:
    """The engine ends before the first replica has heard of the second, and comes back."""
    with cluster(tmp_path, 2, later=1) as running, hosts_of(running) as hosts:
        running.replicas[1].start()
        running.replicas[1].ready()
        back = Timer(AWAY, running.engine.start)

        def leave() -> None:
            running.engine.stop()
            back.start()

        ask_and_answer(hosts, 1, 0, meanwhile=leave)
        back.join()


def ask_and_answer(
    hosts: Hosts, asked_at: int, answered_at: int, meanwhile: Callable[[], None] | None = None
) -> None:
    """A modern host's call with a question, which it answers at another replica."""
    host = hosts.modern(asked_at)
    params: Message = {**use_tool("asker", "name"), "_meta": CAN_ASK}
    question = host.request("tools/call", params)["result"]
    [key] = question["inputRequests"]
    hosts.move(host, answered_at)
    if meanwhile is not None:
        meanwhile()
    answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
    more: Message = {"inputResponses": answers, "requestState": question["requestState"]}
    answer = host.request("tools/call", {**params, **more})
    assert "Ada" in answer["result"]["content"][0]["text"], answer
