"""The workbench on a port, with one server behind it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.suite import Era
from tests.kit.servers import EVERYTHING

PATIENCE = 60  # seconds until the port answers


def fixture(era: Era) -> dict[str, object]:
    """The entry of our own server, in one era."""
    return {"command": sys.executable, "args": ["-E", "-S", EVERYTHING, era]}


def configuration(entry: dict[str, object]) -> dict[str, object]:
    """Dynamic mode under bare names: hosts see the server as it is."""
    server = {"scope": "session", **entry}  # over HTTP, only then may a legacy server ask
    return {
        "toolMode": "dynamic",
        "naming": "bare",
        "toolboxes": {"everything": {"mcpServers": {"everything": server}}},
    }


@contextmanager
def workbench(entry: dict[str, object], folder: Path) -> Generator[str]:
    """The URL of a workbench in front of this server; its log stays in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "workbench-config.json"
    file.write_text(json.dumps(configuration(entry), indent=2))
    port = free_port()
    where = ["--http", f"127.0.0.1:{port}", "--config", str(file)]
    with (folder / "workbench.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mcp_workbench", "serve", *where, "--verbose"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "MCP_WORKBENCH_HOME": str(folder / "home")},
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
        yield f"http://127.0.0.1:{port}/mcp/everything"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except urllib.error.HTTPError:
            return  # it answers; whether it is ready, the scenarios will tell
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"The workbench did not come up (exit status {process.poll()}).")
