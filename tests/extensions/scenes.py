"""Servers with an app behind the real command, and hosts that do or do not show apps."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import serving
from tests.kit.config import apps_entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, META, Json, json_text, use_tool

LEGACY, MODERN = "legacy", "modern"
ERAS = (LEGACY, MODERN)
WAYS = [f"{transport} {era}" for transport in ("stdio", "http") for era in ERAS]
UI = "io.modelcontextprotocol/ui"
SETTINGS = {"mimeTypes": ["text/html;profile=mcp-app"]}
SHOWS_APPS: Json = {"extensions": {UI: SETTINGS}}
PAGE = "ui://monitor/page"


def bench(folder: Path, era: str, *servers: str, flags: tuple[str, ...] = (), **more: Any) -> Path:
    """A file with these servers in the toolbox `dev`."""
    entries = {name: apps_entry(name, era, *flags) for name in servers}
    return write_config(folder, {"toolboxes": {"dev": {"mcpServers": entries}}, **more})


@contextmanager
def shows_apps(config: Path, way: str, *options: str) -> Generator[Host]:
    """A host that shows apps, by `stdio legacy`, `http modern` and so on."""
    transport, era = way.split()
    modern = era == MODERN
    if transport == "stdio":
        with PipeHost(config, *options, modern=modern) as pipe:
            yield Host(pipe, SHOWS_APPS)
        return
    with serving(config) as command:
        http = HttpHost(command.url, modern=modern, capabilities=SHOWS_APPS)
        yield Host(http, SHOWS_APPS)
        http.close()


class Host:
    """A host of either era that declares these capabilities."""

    def __init__(self, pipe: PipeHost | HttpHost, capabilities: Json | None = None) -> None:
        self.pipe = pipe
        self._meta: Json = {}
        self.opening: Json = {}
        declared = capabilities or {}
        if pipe.modern:
            self._meta = {META + "clientCapabilities": declared}
        elif isinstance(pipe, HttpHost):
            self.opening = pipe.opening
        else:
            self.opening = pipe.result("initialize", {**INITIALIZE, "capabilities": declared})
            pipe.notify("notifications/initialized")

    def request(self, method: str, params: Json | None = None) -> Json:
        return self.pipe.request(method, {**(params or {}), "_meta": self._meta})

    def result(self, method: str, params: Json | None = None) -> Json:
        answer = self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def tools(self) -> dict[str, Json]:
        return {tool["name"]: tool for tool in self.result("tools/list")["tools"]}

    def call(self, name: str) -> Json:
        return self.result("tools/call", {"name": name, "arguments": {}})

    def read(self, uri: str) -> Json:
        (content,) = self.result("resources/read", {"uri": uri})["contents"]
        return content

    def seen(self, server: str, method: str) -> list[Json]:
        """The parameters of such requests that the server has got."""
        got = json_text(self.result("tools/call", use_tool(server, "seen")))
        return [one["params"] for one in got if one["method"] == method]

    def declared(self, server: str, method: str) -> list[Json]:
        """The capabilities in such requests: in `_meta`, or in `initialize`."""
        return [
            params["capabilities"]
            if method == "initialize"
            else params["_meta"][META + "clientCapabilities"]
            for params in self.seen(server, method)
        ]
