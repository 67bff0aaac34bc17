"""What replicas cost: `python -m tests.cluster.figures [SESSIONS]` prints the figures of docs/scale.md.

All of it is on one machine, so that only ratios, and CPU time per call, mean anything elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.raw_hosts import RawHost, hosts_at, summed
from tests.cluster.scenes import TOKENS, Cluster, ReplicaProcess, cluster
from tests.kit.results import INITIALIZE, LEGACY

ROUNDS, EACH = 8, 400


class PlainHost:
    """A blocking legacy host on one connection: as little of its own time as possible."""

    def __init__(self, port: int, session: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.session = session
        if not session:
            head, _ = self._send("initialize", INITIALIZE)
            found = re.search(rb"(?i)mcp-session-id: (\S+)", head)
            assert found is not None
            self.session = found[1].decode()

    def _send(self, method: str, params: object) -> tuple[bytes, bytes]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        session = f"Mcp-Session-Id: {self.session}\r\n" if self.session else ""
        head = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
            f"Authorization: Bearer {TOKENS['alice']}\r\nMCP-Protocol-Version: {LEGACY}\r\n"
            f"{session}Content-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        data = b""
        while True:
            data += self._socket.recv(1 << 16)
            start, end, rest = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", start) if end else None
            if length is not None and len(rest) >= int(length[1]):
                return start, rest

    def times(self, count: int) -> list[float]:
        tool = {"toolbox": "dev", "server": "quick", "tool": "echo"}
        params = {"name": "use_tool", "arguments": {"tool": tool, "arguments": {"nonce": "n"}}}
        taken: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            _, body = self._send("tools/call", params)
            taken.append(time.perf_counter() - began)
            assert b'"result"' in body, body
        return taken

    def close(self) -> None:
        self._socket.close()


def engine_figure(running: Cluster, section: str, name: str) -> int:
    found = re.search(rf"{name}:(\d+)".encode(), running.engine.command("INFO", section))
    assert found is not None
    return int(found[1])


def latencies(alone: ReplicaProcess, running: Cluster) -> None:
    owner = PlainHost(running.replicas[0].port)
    hosts = {
        "without a cluster": PlainHost(alone.port),
        "on the owner": owner,
        "forwarded": PlainHost(running.replicas[1].port, owner.session),
    }
    taken: dict[str, list[float]] = {name: [] for name in hosts}
    for host in hosts.values():
        host.times(200)
    for _ in range(ROUNDS):
        for name, host in hosts.items():
            taken[name] += host.times(EACH)
    base = statistics.median(taken["without a cluster"])
    for name, times in taken.items():
        half = statistics.median(times)
        late = statistics.quantiles(times, n=100)[98]
        print(f"{name}: p50 {half * 1e6:.0f} µs, {half / base:.2f} times; p99 {late * 1e6:.0f} µs")
    before, began = engine_figure(running, "stats", "total_commands_processed"), time.monotonic()
    owner.times(5000)
    seconds = time.monotonic() - began
    after = engine_figure(running, "stats", "total_commands_processed")
    began_idle = engine_figure(running, "stats", "total_commands_processed")
    time.sleep(seconds)
    idle = engine_figure(running, "stats", "total_commands_processed") - began_idle
    print(
        f"engine: {after - before} commands in 5000 calls on the owner, {idle} in the same time idle"
    )
    for host in hosts.values():
        host.close()


async def processor(running: Cluster, count: int) -> None:
    """CPU time of the replicas per call, with hosts that use so many of them by turns."""
    used = running.replicas[:count]
    hosts = [RawHost(used[i % count].port, f"p{i}", "alice") for i in range(30)]
    for host in hosts:
        await host.open()
    for i, host in enumerate(hosts):  # the next call of each goes to another replica: round robin
        host.move_to(used[(i // count) % count].port)
    began, before = time.monotonic(), sum(replica.cpu() for replica in used)

    async def calls(host: RawHost) -> None:
        for _ in range(100):
            await host.echo()

    async with asyncio.TaskGroup() as tasks:
        for host in hosts:
            tasks.create_task(calls(host))
    done = sum(summed(hosts).values())
    spent = sum(replica.cpu() for replica in used) - before
    rate = done / (time.monotonic() - began)
    print(
        f"{count} replicas: {spent / done * 1e6:.0f} µs CPU per call, {rate:.0f} calls/s, {summed(hosts)}"
    )
    for host in hosts:
        host.close()


async def many(running: Cluster, count: int) -> None:
    memory = [replica.memory() for replica in running.replicas]
    engine = engine_figure(running, "memory", "used_memory")
    commands = engine_figure(running, "stats", "total_commands_processed")
    began = time.monotonic()
    sessions: list[str] = []
    for at in range(0, count, 500):
        async with hosts_at(running.balancer_port, min(500, count - at)) as hosts:
            sessions += [f"{host.principal} {host.session}" for host in hosts]
    seconds = time.monotonic() - began
    now = [replica.memory() for replica in running.replicas]
    commands = engine_figure(running, "stats", "total_commands_processed") - commands
    each = (sum(now) - sum(memory)) / count
    stored = (engine_figure(running, "memory", "used_memory") - engine) / count
    print(f"{count} sessions in {seconds:.0f} s: {each / 1024:.1f} KiB each in replicas,", end=" ")
    print(f"{stored:.0f} bytes each in the engine, {commands / count:.2f} commands each")
    host = RawHost(running.balancer_port, "again", "alice")
    for entry in sessions:
        host.principal, host.session = entry.split(" ")
        await host.echo()
    print(f"one more call in each of them: {dict(host.outcomes)}")
    host.close()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name, cluster(Path(name), balanced=True) as running:
        alone_folder = Path(name) / "alone"
        alone_folder.mkdir()
        alone = running.alone(alone_folder)
        try:
            latencies(alone, running)
        finally:
            alone.kill()
        for replicas in (1, 2, 3):
            asyncio.run(processor(running, replicas))
        asyncio.run(many(running, count))


if __name__ == "__main__":
    main()
