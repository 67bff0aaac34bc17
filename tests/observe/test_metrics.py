"""`/metrics` says what happened, to those who may read it."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench import ConfigError, load_config
from mcp_workbench.config.http_settings import resolve_http
from mcp_workbench.core.spec import HttpSettings, NamedToken
from mcp_workbench.server.http.metrics_route import AT_ONCE
from tests.kit.clock import until
from tests.kit.config import snapshot, spec, write_config
from tests.kit.http_host import Answer, OwnPort, port
from tests.observe.scene import series, value
from tests.ui.scene import eventually_read

OPEN = HttpSettings(metrics=True)
FLOOD = 40  # readers at once
TOKEN = "scrape-it-with-this"


async def get(opened: OwnPort, method: str = "GET", **headers: str) -> Answer:
    return await opened.ask(b"", headers, method=method, path="/metrics")


async def scraped(opened: OwnPort) -> str:
    answer = await get(opened)
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return answer.body.decode()


async def test_calls_are_counted_by_server_and_outcome_from_the_start_on() -> None:
    async with port(http=OPEN) as opened:
        session = await opened.open()
        for _ in range(3):
            await session.use("echo", {"text": "hi"})
        await session.use("no_such_tool")
        meter = opened.front.gateway.meter
        await until(lambda: meter.calls == 4)
        text = await scraped(opened)

        calls = "mcp_workbench_calls_total"
        assert value(text, calls, toolbox="dev", server="fixture", outcome="ok") == 3
        assert value(text, calls, server="fixture", outcome="unknown_tool") == 1
        duration = "mcp_workbench_call_duration_seconds"
        assert value(text, f"{duration}_count", result="ok") == 3
        assert value(text, f"{duration}_bucket", result="ok", le="+Inf") == 3
        assert value(text, f"{duration}_sum", result="ok") > 0
        phase = "mcp_workbench_call_phase_seconds"
        assert value(text, f"{phase}_count", phase="server") == 4
        assert value(text, f"{phase}_sum", phase="start") > 0
        parts = [
            value(text, f"{phase}_sum", phase=p) for p in ("queue", "start", "server", "workbench")
        ]
        assert sum(parts) == pytest.approx(value(text, f"{duration}_sum"))


async def test_buckets_count_up() -> None:
    async with port(http=OPEN) as opened:
        session = await opened.open()
        await session.use("echo")
        await until(lambda: opened.front.gateway.meter.calls == 1)
        text = await scraped(opened)

    name = "mcp_workbench_call_duration_seconds_bucket"
    buckets = [count for (n, _), count in series(text).items() if n == name]
    assert len(buckets) == 19
    assert buckets == sorted(buckets)


async def test_servers_sessions_memory_and_tokens_are_shown() -> None:
    config = snapshot(spec("fixture"), spec("unused"))
    async with port(config, OPEN) as opened:
        session = await opened.open()
        before = await scraped(opened)
        await session.use("echo")
        text = await scraped(opened)

        assert value(before, "mcp_workbench_server_up", server="fixture") == 0
        assert value(text, "mcp_workbench_server_up", server="fixture") == 1
        assert value(text, "mcp_workbench_server_up", server="unused") == 0
        assert value(text, "mcp_workbench_servers", state="ready") == 1
        assert value(text, "mcp_workbench_servers", state="idle") == 1
        assert value(text, "mcp_workbench_server_starts_total", server="fixture") == 1
        assert value(text, "mcp_workbench_server_restarts_total") == 0
        assert value(text, "mcp_workbench_server_connections", server="fixture") == 1
        assert value(text, "mcp_workbench_server_calls_in_flight") == 0
        assert value(text, "mcp_workbench_server_calls_waiting") == 0
        assert value(text, "mcp_workbench_sessions", kind="http") == 1
        assert value(text, "mcp_workbench_http_connections") >= 1
        assert value(text, "mcp_workbench_server_tools", server="fixture") > 5
        direct = value(text, "mcp_workbench_tokens_direct")
        shown = value(text, "mcp_workbench_tokens_shown")
        assert direct == value(text, "mcp_workbench_server_tokens") > 0
        assert shown > 0
        assert value(text, "mcp_workbench_tokens_saved") == max(direct - shown, 0)
        if sys.platform == "linux":
            assert value(text, "process_resident_memory_bytes") > 1 << 20
            assert value(text, "mcp_workbench_server_memory_bytes", server="fixture") > 1 << 20
            assert value(text, "mcp_workbench_server_processes", server="fixture") >= 1


@pytest.mark.parametrize(
    ("flag", "tool", "queue"), [("hang", "echo", "waiting"), ("", "hang", "in_flight")]
)
async def test_calls_that_wait_for_their_server_are_told_from_those_that_it_has(
    flag: str, tool: str, queue: str
) -> None:
    async with port(snapshot(spec("fixture", *filter(None, [flag]))), OPEN) as opened:
        session = await opened.open()
        for _ in range(3):
            await session.begin(tool)

        async def queues() -> dict[str, float] | None:
            text, names = await scraped(opened), ("waiting", "in_flight")
            read = {name: value(text, f"mcp_workbench_server_calls_{name}") for name in names}
            return read if read[queue] == 3 else None

        assert sum((await eventually_read(queues)).values()) == 3


async def test_a_server_that_died_and_came_back_was_restarted() -> None:
    async with port(http=OPEN) as opened:
        session = await opened.open()
        await session.use("die")
        await session.use("echo")
        text = await scraped(opened)

        assert value(text, "mcp_workbench_server_starts_total") == 2
        assert value(text, "mcp_workbench_server_restarts_total") == 1


async def test_hosts_can_not_make_up_labels() -> None:
    async with port(http=OPEN) as opened:
        session = await opened.open()
        for number in range(40):
            params: dict[str, Any] = {
                "toolbox": f"t{number}",
                "server": 'a"\n',
                "tool": "x",
                "arguments": {},
            }
            body = session.ask("tools/call", {"name": "use_tool", "arguments": params})
            await session.post(body)
        text = await scraped(opened)

    names = {n for n, _ in series(text) if n.startswith("mcp_workbench_calls")}
    of_calls = [labels for n, labels in series(text) if n in names]
    assert len(of_calls) <= 2
    assert all(("toolbox", "(other)") in labels for labels in of_calls)


async def test_a_flood_of_readers_is_refused_and_calls_go_on() -> None:
    async with port(http=OPEN) as opened:
        session = await opened.open()
        peers = [await opened.connect() for _ in range(FLOOD)]
        for peer in peers:
            peer.send(opened.request(b"", method="GET", path="/metrics"))
        call = await session.use("echo", {"text": "hi"})
        answers = [await peer.answer() for peer in peers]

        assert not call.result.get("isError")
        statuses = Counter(answer.status for answer in answers)
        assert set(statuses) == {200, 503}
        assert statuses[200] >= AT_ONCE
        assert await scraped(opened)


async def test_without_the_key_there_is_no_such_path_and_nothing_is_measured() -> None:
    async with port() as opened:
        assert (await get(opened)).status == 404
        assert opened.front.gateway.interceptors == ()


async def test_only_its_own_token_opens_it_and_it_opens_nothing_else() -> None:
    settings = HttpSettings(
        token="of-every-host-1",
        tokens=(NamedToken("laptop", "of-the-laptop-1"),),
        metrics=True,
        metrics_token=TOKEN,
    )
    async with port(http=settings) as opened:
        seen = [
            (await get(opened, authorization=value)).status
            for value in (
                f"Bearer {TOKEN}", "Bearer of-every-host-1", "Bearer of-the-laptop-1", f"Basic {TOKEN}", "",
            )
        ]  # fmt: skip
        refused = await get(opened)
        host = await opened.ask_modern("tools/list", authorization=f"Bearer {TOKEN}")

    assert seen == [200, 401, 401, 401, 401]
    assert "bearer" in refused.headers["www-authenticate"].lower()
    assert host.status == 401


@pytest.mark.parametrize("method", ["POST", "HEAD", "DELETE"])
async def test_it_is_only_read(method: str) -> None:
    async with port(http=OPEN) as opened:
        peer = await opened.connect()
        peer.send(opened.request(b"", {}, method=method, path="/metrics"))
        status, headers = await peer.head()

    assert status == 405
    assert headers["allow"] == "GET"


async def test_pages_of_others_can_not_read_it() -> None:
    async with port(http=OPEN) as opened:
        assert (await get(opened, origin="https://evil.example")).status == 403
        assert (await get(opened, host="evil.example")).status == 421


async def test_programs_of_ours_read_the_same_as_json() -> None:
    async with port(http=OPEN) as opened:
        session = await opened.open()
        await session.use("echo")
        await until(lambda: opened.front.gateway.meter.calls == 1)
        answer = await get(opened, accept="application/json")

    document = json.loads(answer.body)
    assert answer.headers["content-type"] == "application/json"
    assert document["pid"] == os.getpid()
    assert document["stats"]["series"][0]["outcome"] == "ok"


# The configuration


def settings_of(folder: Path, **http: Any) -> HttpSettings:
    boxes = {"dev": {"mcpServers": {"a": {"command": "a"}}}}
    path = write_config(folder, {"toolboxes": boxes, "http": {"metrics": True, **http}})
    environ = {"HOSTS": "of-all-the-hosts-here", "SCRAPE": "of-the-one-who-scrapes"}
    loopback = "allowedHosts" not in http
    return resolve_http(load_config(str(path), environ=environ), environ, loopback=loopback)


@pytest.mark.parametrize(
    "http", [{"token": "${HOSTS}"}, {"token": "${HOSTS}", "allowedHosts": ["workbench.example"]}]
)
def test_a_port_that_wants_tokens_wants_one_for_metrics_too(
    tmp_path: Path, http: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(tmp_path, **http)
    settings = settings_of(tmp_path, **http, metricsToken="${SCRAPE}")

    assert [(p.code, p.path) for p in caught.value.problems] == [
        ("WB-CONF-065", "http.metricsToken")
    ]
    assert settings.metrics_token == "of-the-one-who-scrapes"
    assert settings_of(tmp_path).metrics_token == ""


def test_the_token_of_hosts_is_not_that_of_metrics(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(tmp_path, token="${HOSTS}", metricsToken="${HOSTS}")

    assert [p.code for p in caught.value.problems] == ["WB-CONF-042"]
