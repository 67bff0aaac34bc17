"""`top` shows a running workbench, once or live, from the background or from a port."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest

from mcp_workbench.cli.top_screen import are_whole, change_between, screen
from mcp_workbench.core.call_stats import Histogram
from mcp_workbench.core.figures import Figures, Hosts, RequestTokens, ServerFigures
from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import run_command, serving
from tests.kit.config import config_file, entry, write_config
from tests.kit.results import use_tool
from tests.kit.shared import shared
from tests.kit.terminal import terminal
from tests.observe.scene import value
from tests.observe.test_call_stats import call, counted, kind

pytestmark = pytest.mark.usefixtures("forked_commands")

OPENED, CLOSED = "\x1b[?1049h", "\x1b[?1049l"


def figures(seconds: float = 100.0, calls: int = 0, **more: Any) -> Figures:
    kinds = kind(outcome="timeout", is_error=True), kind()
    stats = counted(*(call(kinds[number % 2]) for number in range(calls)))
    servers = (
        ServerFigures("box", "a", "ready", 1, memory=50 << 20, tools=3, tokens=900),
        ServerFigures("box", "b", "failed", failures=3, restarts=2),
    )
    plain = Figures(
        "1.2.3", 42, "proxy", seconds, 1.0, servers, Hosts(2, 1, 3), stats.snapshot(), RequestTokens(9000, 800)
    )  # fmt: skip
    return Figures(**{name: getattr(plain, name) for name in plain.__struct_fields__} | more)


# What is on the screen


def test_the_screen_has_rates_between_two_readings() -> None:
    before, now = figures(), figures(110.0, 40, cpu=2.0)
    lines = screen(now, change_between(before, now), 200, 0)
    text = "\n".join(lines)

    assert "calls 40, 4.0/s" in text
    assert "errors 20 (50.0 %)" in text
    assert "cpu 10.0 %" in text
    assert "servers 1 of 2 connected" in text
    assert "outcomes timeout 20, ok 20" in text
    assert "hosts 1 joined   2 sessions over HTTP   3 connections" in text
    assert "≈ 9,000 listed directly   ≈ 800 shown   ≈ 8,200 saved" in text
    assert re.search(r"box/a +ready +4.0 +40 +20 +\S+ ms +\S+ ms +0 +0 +0 +50 MB +≈ 900", text)
    assert re.search(r"box/b +failed +0.0 +0 +0 +- +- +0 +0 +2 +- +-", text)
    assert re.search(r"box/a/echo +40 +20 +2.1 ms +≈ 4,000", text)


def test_a_workbench_that_was_restarted_has_no_rate() -> None:
    old = figures(500.0, 40)

    assert change_between(None, old) is None
    assert change_between(old, figures(10.0)) is None
    assert change_between(old, figures(600.0, pid=43)) is None
    assert "calls 40, -/s" in "\n".join(screen(old, None, 200, 0))


@pytest.mark.parametrize(("width", "height"), [(40, 5), (80, 23), (20, 12), (300, 100)])
def test_the_screen_fits_into_the_terminal(width: int, height: int) -> None:
    lines = screen(figures(calls=7), None, width, height)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_names_of_servers_and_tools_can_not_move_the_cursor() -> None:
    stats = counted(call(kind(tool="evil\x1b[2J\n")))
    lines = screen(figures(stats=stats.snapshot()), None, 200, 0)

    assert all(line.isprintable() for line in lines)


def test_whoever_answers_at_a_url_can_not_move_the_cursor_either() -> None:
    word = "\x1b]0;x\x07\n"
    stats = counted(call(kind(outcome=word)))
    servers = (ServerFigures(word, word, word),)
    shown = figures(version=word, mode=word, servers=servers, stats=stats.snapshot())

    assert all(line.isprintable() for line in screen(shown, None, 200, 0))


def test_figures_that_do_not_fit_together_are_none() -> None:
    good = figures(calls=3)
    stats = good.stats
    replace = msgspec.structs.replace
    series, tool = stats.series[0], stats.tools[0]
    short = replace(series, total=Histogram((1,)))
    fewer = replace(series, phases=series.phases[:2])
    bad = [
        replace(stats, series=(short,)),
        replace(stats, series=(fewer,)),
        replace(stats, tools=(replace(tool, calls=0),)),
        replace(stats, calls=0),
    ]

    assert are_whole(good)
    assert are_whole(figures())
    assert [are_whole(replace(good, stats=one)) for one in bad] == [False] * 4


# From the workbench in the background


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "with a space"
    folder.mkdir()
    return config_file(folder, {"a": entry()})


def test_once_and_json_show_the_workbench_in_the_background(config: Path) -> None:
    with shared(config) as workbench:
        workbench.done("top", "--once")  # from now on calls are measured
        with workbench.host() as host:
            host.handshake()
            host.use("a", "echo")
            text = workbench.done("top", "--once", "--interval", "0.1")
            document = json.loads(workbench.done("top", "--once", "--json"))

    assert re.search(r"dev/a +ready +0.0 +1 +0", text)
    assert "hosts 1 joined" in text
    assert "\x1b" not in text
    assert document["stats"]["calls"] == 1
    assert document["servers"][0]["connections"] == 1
    assert document["pid"] == workbench.pid


def test_without_a_workbench_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = run_command("top", "--once", cwd=config_file(tmp_path, {"a": entry()}).parent)

    assert done.status == 1
    assert "not running" in done.err
    assert "mcp-workbench up" in done.err


# Live


def test_live_it_follows_calls_and_the_size_and_ctrl_c_leaves_a_clean_terminal(
    config: Path,
) -> None:
    with shared(config) as workbench, workbench.host() as host:
        argv = ("top", "--config", str(config), "--interval", "0.2")
        with terminal(*argv, cwd=config.parent, columns=120, variables=workbench.env) as live:
            live.expect(OPENED)
            live.expect("calls 0")
            host.handshake()
            host.use("a", "echo")
            live.expect("calls 1")
            live.resize(30, 10)
            live.expect("SERVER  STATE  CALLS/S  CALLS…")
            live.type("\x03")
            status = live.rest()

    assert status == 0
    assert live.screen.rstrip().endswith(f"\x1b[?25h{CLOSED}")
    assert "Traceback" not in live.screen


def test_live_it_waits_for_a_workbench_that_is_restarted(config: Path) -> None:
    with shared(config) as workbench:
        argv = ("top", "--config", str(config), "--interval", "0.2")
        with terminal(*argv, cwd=config.parent, columns=120, variables=workbench.env) as live:
            live.expect(f"pid {workbench.pid}")
            workbench.done("down")
            live.expect("not running")
            workbench.up()
            live.expect(f"pid {workbench.pid}")
            os.kill(live.pid, signal.SIGTERM)
            assert live.rest() == 0

    assert live.screen.rstrip().endswith(CLOSED)


# From a port


def test_a_port_with_metrics_is_shown_with_its_token(tmp_path: Path) -> None:
    tokens = {"HOSTS": "of-the-hosts", "SCRAPE": "of-metrics"}
    http = {"token": "${HOSTS}", "metrics": True, "metricsToken": "${SCRAPE}"}
    boxes = {"dev": {"mcpServers": {"a": entry()}}}
    path = write_config(tmp_path, {"toolboxes": boxes, "http": http})
    with serving(path, "0", tokens) as command:
        host = HttpHost(command.url, modern=True, token=tokens["HOSTS"])
        host.request("tools/call", use_tool("a", "echo"))
        host.close()

        def run(**env: str) -> subprocess.CompletedProcess[str]:
            return run_top(command.url, tmp_path, env)

        refused, shown = run(), run(MCP_WORKBENCH_METRICS_TOKEN=tokens["SCRAPE"])

    assert refused.returncode == 1
    assert "MCP_WORKBENCH_METRICS_TOKEN" in refused.stderr
    assert re.search(r"dev/a +ready +0.0 +1 ", shown.stdout), shown


def test_it_shows_what_metrics_say(tmp_path: Path) -> None:
    boxes = {"dev": {"mcpServers": {"a": entry(), "unused": entry()}}}
    path = write_config(tmp_path, {"toolboxes": boxes, "http": {"metrics": True}})
    with serving(path, "0") as command:
        host = HttpHost(command.url, modern=False)
        for tool in ("echo", "echo", "no_such_tool"):
            host.request("tools/call", use_tool("a", tool))
        with urlopen(command.url.replace("/mcp", "/metrics"), timeout=30) as answer:
            text = answer.read().decode()
        shown = run_top(command.url, tmp_path, {}).stdout
        host.close()

    def read(name: str, **labels: str) -> int:
        return int(value(text, f"mcp_workbench_{name}", **labels))

    outcomes = [("ok", 2), ("unknown_tool", 1)]
    assert [(word, read("calls_total", outcome=word)) for word, _ in outcomes] == outcomes
    assert "outcomes ok 2, unknown_tool 1" in shown
    assert f"{read('sessions', kind='http')} sessions over HTTP" in shown
    assert f"waiting {read('server_calls_waiting')}" in shown
    direct, tokens, saved = (read(f"tokens_{name}") for name in ("direct", "shown", "saved"))
    rounded = re.findall(r"≈ ([\d,]+) (?:listed directly|shown|saved)", shown)
    for exact, seen in zip((direct, tokens, saved), rounded, strict=True):
        assert int(seen.replace(",", "")) == pytest.approx(exact, rel=0.1)
    row = re.search(r"dev/a +ready .*", shown)
    assert row is not None, shown
    cells = row[0].split()
    assert int(cells[3]) == read("calls_total", server="a") == 3
    assert int(cells[-1]) == read("server_connections", server="a") == 1
    assert re.search(r"dev/unused +idle .* 0$", shown, re.M), shown


def run_top(url: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = run_command("top", url, "--once", "--interval", "0.1", cwd=folder, **env)
    return subprocess.CompletedProcess([], done.status, done.out, done.err)


def test_a_port_without_metrics_says_what_is_missing(tmp_path: Path) -> None:
    with serving(config_file(tmp_path, {"a": entry()})) as command:
        done = run_top(command.url, tmp_path, {})

    assert done.returncode == 1
    assert '"metrics": true' in done.stderr


@pytest.mark.parametrize("url", ["ftp://x", "http://127.0.0.1:1", "nonsense"])
def test_a_url_that_leads_nowhere_is_an_error_in_words(url: str, tmp_path: Path) -> None:
    done = run_top(url, tmp_path, {})

    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr
