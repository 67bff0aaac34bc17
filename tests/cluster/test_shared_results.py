"""Long results that are read in parts, on another replica than the one that made them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.blocking_hosts import hosts_of
from tests.cluster.scenes import LIMIT, Cluster, cluster
from tests.kit.blocking_http_host import HttpHost
from tests.kit.results import use_tool
from tests.kit.servers import FIXTURE

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]

BUDGET = 1000
_HANDLE = re.compile(r'"handle":"([^"]+)","offset":(\d+)')


def toolboxes() -> dict[str, Any]:
    server = {"command": sys.executable, "args": ["-E", "-S", FIXTURE], "era": "legacy"}
    return {"dev": {"mcpServers": {"one": server}, "resultBudget": BUDGET}}


def cut(host: HttpHost, size: int) -> tuple[str, int]:
    """The handle of a result of so many characters, and where to read on."""
    answer = host.request("tools/call", use_tool("one", "big", {"n": size}))["result"]
    found = _HANDLE.search(answer["content"][-1]["text"])
    assert found, answer
    return found[1], int(found[2])


def read(host: HttpHost, handle: str, **more: Any) -> tuple[bool, list[str]]:
    """Whether reading was an error, and its texts."""
    arguments = {"handle": handle, **more}
    answer = host.request("tools/call", {"name": "read_result", "arguments": arguments})["result"]
    return bool(answer.get("isError")), [block["text"] for block in answer["content"]]


def kept(running: Cluster) -> set[str]:
    """The names of results in the engine."""
    names = running.engine.command("KEYS", "*:result:*").decode("latin-1")
    return set(re.findall(r"\S+:result:\S+", names))


def commands(running: Cluster) -> tuple[int, int]:
    """Scripts that the engine has run so far (of beats), and commands that read or write what replicas share."""
    stats = running.engine.command("INFO", "commandstats").decode()
    counted = {name: int(calls) for name, calls in re.findall(r"cmdstat_(\w+):calls=(\d+)", stats)}
    ours = ("get", "set", "xadd", "rpush", "expire", "del")
    return counted.get("evalsha", 0), sum(counted.get(name, 0) for name in ours)


def commands_between_two_beats(running: Cluster, act: Callable[[], None]) -> int:
    """What it costs the engine, measured where no beat came in between."""
    for _ in range(20):
        scripts, before = commands(running)
        act()
        scripts_then, after = commands(running)
        if scripts == scripts_then:
            return after - before
    raise AssertionError("it always takes longer than a beat")


def wait_for_catalogue(running: Cluster) -> None:
    """What a server offers is written once, soon after it was listed."""
    end = time.monotonic() + 20
    while b":catalogue:" not in running.engine.command("KEYS", "*:catalogue:*"):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_call_costs_the_engine_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path, 1, toolboxes=toolboxes()) as running, hosts_of(running) as hosts:
        for host in (hosts.modern(0), hosts.legacy(0)):
            call = use_tool("one", "echo", {"text": "x"})
            assert "result" in host.request("tools/call", call)
            wait_for_catalogue(running)

            def call_often(host: HttpHost = host, call: Any = call) -> None:
                for _ in range(50):
                    assert "result" in host.request("tools/call", call)

            assert commands_between_two_beats(running, call_often) == 0

            def cut_one(host: HttpHost = host) -> None:
                cut(host, 20_000)

            assert commands_between_two_beats(running, cut_one) == 1


def read_when_known(host: HttpHost, handle: str) -> list[str]:
    """Its texts, once the replicas know each other."""
    end = time.monotonic() + 20
    while True:
        refused, texts = read(host, handle)
        if not refused:
            return texts
        assert time.monotonic() < end, texts
        time.sleep(0.1)


def test_a_result_is_read_on_any_replica_also_when_its_maker_was_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, toolboxes=toolboxes()) as running, hosts_of(running) as hosts:
        maker, other, stranger = hosts.modern(0), hosts.modern(1), hosts.modern(1, "bob")
        handle, end = cut(maker, 50_000)
        whole = read(maker, handle, length=60_000)
        assert not whole[0]
        assert read(other, handle, length=60_000) == whole
        assert read(stranger, handle)[0]
        large, _ = cut(maker, 3 << 20)
        assert read_when_known(other, large)[0] == read(maker, large)[1][0]
        session = hosts.legacy(0)
        of_session, _ = cut(session, 20_000)
        part = read(session, of_session)

        running.replicas[0].kill()

        assert read(other, handle, length=60_000) == whole
        assert read(other, handle, offset=end)[0] is False
        refused, texts = read(stranger, handle)
        assert refused
        assert "not found" in texts[0]
        refused, texts = read(other, large)
        assert refused
        assert "has ended" in texts[0]
        assert "larger than 1 MiB" in texts[0]
        hosts.move(session, 1)
        assert read(session, of_session) == part
        check_that_values_are_bound(running, lambda: read(other, handle)[0])


def check_that_values_are_bound(running: Cluster, refused: Callable[[], bool]) -> None:
    """Whoever runs the engine can remove a result, and can neither change nor replace one."""
    first, second = kept(running)
    for name in (first, second):
        assert 0 < int(running.engine.command("TTL", name)[1:]) <= 1800
    assert not refused()
    running.engine.command("COPY", first, "copy")
    running.engine.command("COPY", second, first, "REPLACE")
    running.engine.command("COPY", "copy", second, "REPLACE")
    assert refused()
