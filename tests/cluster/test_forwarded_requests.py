"""Requests that one replica passes on to another: large answers, hosts that do not read, hosts that leave, many at once."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.blocking_hosts import Hosts, hosts_of
from tests.cluster.raw_hosts import RawHost, strange, summed
from tests.cluster.scenes import LIMIT, TOKENS, Cluster, cluster
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE, eventually
from tests.kit.config import quick_entry
from tests.kit.http_host import modern_headers, rpc
from tests.kit.results import LEGACY, enveloped, use_tool

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

LARGE = 20_000_000  # bytes of one answer; what may wait for a reader of a stream is 8 MiB
NOTICES = 2500  # of one call
TOKEN = "p" * 10_000  # which is repeated in each of them
ROOM = 40 << 20  # bytes by which a replica may grow meanwhile
ADOPTERS = 64


class SlowHost:
    """A host whose side of the connection takes a few kilobytes at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))

    def send(self, body: bytes, headers: dict[str, Any]) -> None:
        lines = {
            "Host": "127.0.0.1",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {TOKENS['alice']}",
            "Content-Length": len(body),
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.socket.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)

    def call(self, session: str, server: str, tool: str, arguments: Any, **meta: Any) -> None:
        params = {**use_tool(server, tool, arguments), **({"_meta": meta} if meta else {})}
        self.send(
            rpc("tools/call", params, 7),
            {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY},
        )

    def answer(self) -> bytes:
        """The body of an answer that comes whole."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._read()
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length is not None, head
        parts, size = [body], len(body)
        while size < int(length[1]):
            parts.append(self._read())
            size += len(parts[-1])
        return b"".join(parts)

    def _read(self) -> bytes:
        data = self.socket.recv(1 << 16)
        assert data, "the connection ended before the answer"
        return data


def test_a_large_answer_reaches_a_host_that_reads_slowly(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as running, hosts_of(running) as hosts:
        session = hosts.legacy(0).session
        slow = SlowHost(running.replicas[1].port)
        with slow.socket:
            slow.call(session, "one", "big", {"n": LARGE})
            answer = json.loads(slow.answer())
        assert len(answer["result"]["content"][0]["text"].strip('"')) == LARGE


def test_a_stream_that_is_not_read_fills_no_replica(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as running, hosts_of(running) as hosts:
        host = hosts.legacy(0)
        before = [replica.memory() for replica in running.replicas]
        slow = SlowHost(running.replicas[1].port)
        with slow.socket:
            slow.call(host.session, "one", "progress", {"n": NOTICES}, progressToken=TOKEN)
            eventually(lambda: is_disconnected(slow), "it is disconnected")
        after = [replica.memory() for replica in running.replicas]
        assert max(b - a for a, b in zip(before, after, strict=True)) < ROOM
        hosts.move(host, 1)
        assert "result" in host.request("tools/call", use_tool("quick", "echo", {"nonce": "n"}))


def is_disconnected(host: SlowHost) -> bool:
    """Whether the replica has given up this connection."""
    port = host.socket.getsockname()[1]
    needle = f":{port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ours = [line.split() for line in lines if line.split()[2].endswith(needle)]
    return not ours or ours[0][3] != "01"


def test_a_modern_call_ends_at_another_replica_when_its_host_leaves(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as running, hosts_of(running) as hosts:
        watching = hosts.legacy(0)
        calls_seen(watching)  # the server runs
        running.replicas[1].signal(signal.SIGTERM)  # from now on it passes on what is new
        eventually(lambda: running.replicas[1].status("/readyz") == 503, "it drains")
        call_and_leave(running.replicas[1].port, watching)
        eventually(lambda: len(stats(watching)["cancelled"]) == 1, "the server hears of it")


def test_a_modern_call_ends_when_its_host_leaves_the_balancer(tmp_path: Path) -> None:
    with cluster(tmp_path, 1, balanced=True) as running, hosts_of(running) as hosts:
        watching = hosts.legacy(0)
        call_and_leave(running.balancer_port, watching)
        eventually(lambda: len(stats(watching)["cancelled"]) == 1, "the server hears of it")


def call_and_leave(port: int, watching: HttpHost) -> None:
    """A call without an end, and the end of its connection when it has reached its server."""
    leaving, before, looks = SlowHost(port), calls_seen(watching), count(1)
    with leaving.socket:
        params = use_tool("one", "hang")
        body = rpc("tools/call", enveloped(params), 7)
        leaving.send(body, modern_headers("tools/call", params))
        eventually(lambda: calls_seen(watching) > before + next(looks), "the call is there")


def calls_seen(host: HttpHost) -> int:
    """Calls that the server has received, this one among them."""
    return stats(host)["methods"].count("tools/call")


def stats(host: HttpHost) -> Any:
    answer = host.request("tools/call", use_tool("one", "stats"))
    return json.loads(answer["result"]["content"][0]["text"])


def test_a_session_is_adopted_once_however_many_ask(tmp_path: Path) -> None:
    async def scene(running: Cluster) -> None:
        owner, *others = running.replicas
        host = RawHost(owner.port, "h", "alice")
        await host.open()
        before = await host.call("own", "stats", {})
        assert before is not None
        await asyncio.to_thread(owner.kill)
        host.close()
        hosts = [RawHost(others[i % 2].port, "h", "alice") for i in range(ADOPTERS)]
        texts: list[Any] = []

        async def ask(one: RawHost, number: int) -> None:
            one.session = host.session
            one.number_from(100 * number)
            text = await one.call("own", "slow", {"seconds": 0})
            one.judge(text, right=text is not None)
            texts.append(text)

        async with asyncio.TaskGroup() as tasks:
            for number, one in enumerate(hosts, 1):
                tasks.create_task(ask(one, number))
        assert summed(hosts) == {"ok": ADOPTERS}, strange(hosts)
        assert len(set(texts)) == 1  # one process of the server, of one owner
        for one in hosts:
            one.close()

    with cluster(tmp_path) as running:
        asyncio.run(scene(running))


def test_a_session_belongs_to_its_principal_on_every_replica(tmp_path: Path) -> None:
    """Before and after it was adopted; and a principal sees its own toolboxes, whoever answers."""
    quick = {"mcpServers": {"quick": quick_entry("quick")}}
    tokens = {"alice": {"token": "${ALICE}"}, "bob": {"token": "${BOB}", "toolboxes": ["dev"]}}
    boxes = {"dev": quick, "private": quick}
    http = {"tokens": tokens, "allowedHosts": ["127.0.0.1"]}
    with cluster(tmp_path, toolboxes=boxes, http=http) as running, hosts_of(running) as hosts:
        alice, bob, thief = hosts.legacy(0), hosts.legacy(0, "bob"), hosts.legacy(1, "bob")
        thief.take_session(alice)
        for replica in (0, 1, 2):
            check_principals(hosts, alice, bob, thief, replica)
        running.replicas[0].kill()
        for replica in (1, 2):
            check_principals(hosts, alice, bob, thief, replica)


def check_principals(
    hosts: Hosts, alice: HttpHost, bob: HttpHost, thief: HttpHost, replica: int
) -> None:
    for host in (alice, bob, thief):
        hosts.move(host, replica)
    stolen = thief.request("tools/call", use_tool("quick", "echo", {"nonce": "n"}))
    assert "not found" in stolen["error"]["message"]
    for host, toolbox, is_allowed in (
        (alice, "dev", True),
        (alice, "private", True),
        (bob, "dev", True),
        (bob, "private", False),
    ):
        call = use_tool("quick", "echo", {"nonce": "n"}, toolbox=toolbox)
        result = host.request("tools/call", call)["result"]
        assert result.get("isError", False) is not is_allowed, result
