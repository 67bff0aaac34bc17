"""A workbench with the page in a process, and steps that several browser tests share."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.config import config_file
from tests.kit.results import Json
from tests.ui.browser import Page

SERVER = str(Path(__file__).with_name("page_server.py"))
SCREENSHOTS = os.environ.get("UI_SCREENSHOTS", "")
ALL_SCREENSHOTS = os.environ.get("UI_ALL_SCREENSHOTS", "")


class Bench:
    """`serve --http --ui` in a process, which can be ended and started again on its port."""

    def __init__(self, config: Path) -> None:
        self.config = config
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        own = {"MCP_WORKBENCH_HOME": str(config.parent / "state"), "HOME": str(config.parent)}
        self.env = {**os.environ, **own, "PATH": "/usr/local/bin:/usr/bin:/bin"}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Start it. An address that opens its page."""
        argv = [sys.executable, "-m", "mcp_workbench", "serve", "--http", str(self.port), "--ui"]
        self._process = subprocess.Popen(
            [*argv, "--config", str(self.config)], stderr=subprocess.PIPE, text=True, env=self.env
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"page: (\S+)", line):
                return found[1]
        raise AssertionError("it has ended")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=30)
            self._process = None

    def calls(
        self,
        count: int,
        *,
        server: str = "files",
        tool: str = "tool_0001",
        path: str = "src/a.py",
        host: str = "claude-code",
    ) -> None:
        """Calls of a host over HTTP, all on one connection."""
        target = {"toolbox": "dev", "server": server, "tool": tool}
        self.host([("use_tool", {"tool": target, "arguments": {"path": path}})] * count, host)

    def host(self, calls: Iterable[tuple[str, Json]], name: str = "claude-code") -> list[Json]:
        """What a host gets for these calls of our own tools, all on one connection."""
        from http.client import HTTPConnection

        http = HTTPConnection("127.0.0.1", self.port)
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }

        def send(method: str, params: Any, id: int | None) -> bytes:
            message = {"jsonrpc": "2.0", "method": method, "params": params}
            whole = message if id is None else {**message, "id": id}
            http.request("POST", "/mcp", json.dumps(whole), headers)
            response = http.getresponse()
            body = response.read()
            if session := response.headers.get("mcp-session-id"):
                headers["mcp-session-id"] = session
            return body

        info = {"name": name, "version": "2.1"}
        first = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        send("initialize", first, 1)
        send("notifications/initialized", {}, None)
        answers = [
            send("tools/call", {"name": tool, "arguments": arguments}, number)
            for number, (tool, arguments) in enumerate(calls, 2)
        ]
        http.close()
        return [json.loads(answer) for answer in answers]


@contextmanager
def bench(folder: Path, servers: Json, **more: Any) -> Generator[tuple[Bench, str]]:
    it = Bench(config_file(folder, servers, **more))
    try:
        yield it, it.start()
    finally:
        it.stop()


def started(page: Page, *states: str) -> None:
    """Press the button that starts all servers, and wait until it has an effect."""
    page.click("h1 button.main")
    for state in states:
        page.wait(f"document.body.innerText.includes({json.dumps(state)})")


def show(page: Page, name: str, folder: Path) -> None:
    place = SCREENSHOTS if name.startswith("ui-") else ALL_SCREENSHOTS
    page.screenshot(Path(place or folder) / f"{name}.png")
