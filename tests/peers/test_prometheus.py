"""Debian's Prometheus scrapes `/metrics`, with the token, and finds nothing wrong with it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import within
from tests.kit.command import serving
from tests.kit.config import entry, write_config
from tests.kit.results import use_tool

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(
        not (PROMETHEUS and PROMTOOL), reason="prometheus and promtool are not installed"
    ),
]
PATIENCE = 60.0  # seconds for Prometheus to start and scrape once
TOKENS = {"SCRAPE_TOKEN": "of-the-one-who-scrapes", "HOST_TOKEN": "of-the-hosts-of-this-port"}


def fetched(url: str, token: str = "") -> bytes:
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read()


@contextmanager
def prometheus(folder: Path, target: str) -> Generator[str]:
    """A Prometheus that scrapes this address; yields its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    token = folder / "token"
    token.write_text(TOKENS["SCRAPE_TOKEN"])
    job = {
        "job_name": "workbench",
        "scrape_interval": "1s",
        "authorization": {"credentials_file": str(token)},
        "static_configs": [{"targets": [target]}],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps({"scrape_configs": [job]}))  # YAML, too
    log = (folder / "prometheus.log").open("wb")
    process = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        cwd=folder,
        stdout=log,
        stderr=log,
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def asked(base: str, query: str) -> list[dict[str, Any]]:
    """The series that Prometheus has for this expression; none while it does not answer."""
    url = f"{base}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        return json.loads(fetched(url))["data"]["result"]
    except OSError:
        return []


def test_prometheus_scrapes_the_calls_with_its_token(tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    folder.mkdir()
    http = {"token": "${HOST_TOKEN}", "metrics": True, "metricsToken": "${SCRAPE_TOKEN}"}
    boxes = {"dev": {"mcpServers": {"a": entry()}}}
    config = write_config(folder, {"toolboxes": boxes, "http": http})
    with serving(config, "0", TOKENS) as command:
        host = HttpHost(command.url, modern=True, token=TOKENS["HOST_TOKEN"])
        for _ in range(5):
            host.request("tools/call", use_tool("a", "echo"))
        host.close()
        target = urllib.parse.urlsplit(command.url).netloc
        text = fetched(f"http://{target}/metrics", TOKENS["SCRAPE_TOKEN"])
        checked = subprocess.run(
            [str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, timeout=60
        )
        with prometheus(folder, target) as base:
            query = 'mcp_workbench_calls_total{outcome="ok"}'
            assert within(PATIENCE, lambda: bool(asked(base, query))), (
                folder / "prometheus.log"
            ).read_text()
            (calls,) = asked(base, query)
            (up,) = asked(base, "up")
            half = (
                "histogram_quantile(0.5, sum by (le) (mcp_workbench_call_duration_seconds_bucket))"
            )
            (median,) = asked(base, half)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    assert up["value"][1] == "1"
    assert calls["value"][1] == "5"
    assert (calls["metric"]["toolbox"], calls["metric"]["server"]) == ("dev", "a")
    assert 0 < float(median["value"][1]) < 60
