"""Apps behind the workbench in a browser: Inspector's web page in Chromium, and app servers from npm."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import NODE_MODULES
from crew import OFFICIAL
from rawpeer import peers_config
from shop import SECONDS, workbench_on_a_port
from test_inspector import INSPECTOR, a_node_that_runs_it
from test_sign_in_to_us import free_port

from tests.kit.clock import eventually
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import MARK, assert_all_gone
from tests.kit.results import Json

pytestmark = pytest.mark.peers

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
APPS = {
    "monitor": "server-system-monitor",
    "clock": "server-basic-vanillajs",
    "second": "server-basic-vanillajs",  # the same tools, and the same page
}
# Mode, road, era: a host of every kind, each mode in both eras but one.
WAYS = ["proxy http legacy", "proxy pipe modern", "dynamic http legacy", "bare http modern"]


def entry(package: str) -> Json:
    program = NODE_MODULES / OFFICIAL / package / "dist" / "index.js"
    return {"command": "node", "args": [str(program), "--stdio"]}


@contextmanager
def inspector(program: list[str], env: dict[str, str]) -> Generator[str]:
    """The address of Inspector's web page."""
    page, sandbox, origin = free_port(), free_port(), free_port()
    env = {
        **env,
        "CLIENT_PORT": str(page),
        "MCP_SANDBOX_PORT": str(sandbox),
        "MCP_APP_ORIGIN_PORT": str(origin),
        "MCP_AUTO_OPEN_ENABLED": "false",
        "DANGEROUSLY_OMIT_AUTH": "true",
    }
    log = Path(env["HOME"], "inspector.log")
    with (
        log.open("w") as output,
        subprocess.Popen(
            program, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process,
    ):
        try:
            eventually(lambda: "up and running" in log.read_text(), "Inspector is ready")
            yield f"http://127.0.0.1:{page}/"
        finally:
            process.terminate()
            process.wait(SECONDS)


@pytest.mark.timeout(180)  # Inspector, a browser and four servers, on whatever machine
@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
@pytest.mark.parametrize("way", WAYS)
def test_apps_are_shown_and_call_their_own_servers(
    way: str, workplace: Path, tmp_path: Path
) -> None:
    calls = tmp_path / "calls.jsonl"
    shown = apps_behind_the_workbench(way, workplace, tmp_path, calls)
    assert_all_gone(str(tmp_path))

    assert len(shown) == len(APPS)
    assert all(before != after for before, after in shown.values())
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    assert {line["outcome"] for line in lines} == {"ok"}
    assert not any(line["is_error"] for line in lines)
    called = Counter((line["server"], line.get("tool")) for line in lines)
    assert called["monitor", "get-system-info"] == 1  # by the host
    assert called["monitor", "poll-system-stats"] >= 2  # by the app
    # Once by the host, which shows the app, and once by the app, whose button was pressed.
    assert (called["clock", "get-time"], called["second", "get-time"]) == (2, 2)


def apps_behind_the_workbench(
    way: str, workplace: Path, folder: Path, calls: Path
) -> dict[str, list[str]]:
    mode, road, era = way.split()
    servers = {name: entry(package) for name, package in APPS.items()}
    config = peers_config(
        folder, servers, tools="proxy" if mode == "proxy" else "dynamic", mark=str(folder)
    )
    if mode == "bare":
        config.write_text(json.dumps({**json.loads(config.read_text()), "naming": "bare"}))
    env = {**os.environ, MARK: str(folder), "HOME": str(folder)}
    if mode != "bare":
        with PipeHost(config, env=env) as first:  # from then on its apps are known
            first.handshake().open("peers")
    bench = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)]
    bench += ["--log-calls", str(calls)]
    program = [a_node_that_runs_it(), str(NODE_MODULES / INSPECTOR), "--web", "--protocol-era", era]

    if road == "pipe":
        script = folder / "bench.sh"
        state = env["MCP_WORKBENCH_HOME"]  # Inspector hands on few variables
        own = ["env", f"MCP_WORKBENCH_HOME={state}", f"{MARK}={folder}", *bench]
        script.write_text(f"#!/bin/sh\nexec {shlex.join(own)}\n")
        script.chmod(0o755)
        with inspector([*program, "--transport", "stdio", str(script)], env) as page:
            return in_a_browser(workplace, page, folder)
    with (
        workbench_on_a_port(bench, env) as url,
        inspector([*program, "--transport", "http", "--server-url", url], env) as page,
    ):
        return in_a_browser(workplace, page, folder)


def in_a_browser(workplace: Path, page: str, folder: Path) -> dict[str, list[str]]:
    """What each app shows before and after its own calls."""
    screenshots = os.environ.get("APPS_SCREENSHOTS", str(folder))
    browser = [a_node_that_runs_it(), "apps_browser.mjs", CHROMIUM, page]
    done = subprocess.run(
        [*browser, str(Path(screenshots, "app-%.png"))],
        cwd=workplace,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr + (folder / "inspector.log").read_text()
    return json.loads(done.stdout)
