"""One trace leads from a host of the SDK through the workbench to a server of the SDK, in every pair of eras."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.kit.clock import within
from tests.kit.command import serving
from tests.kit.config import write_config
from tests.kit.forked import COMMAND

pytestmark = pytest.mark.peers

HERE = Path(__file__).parent
PATIENCE = 30.0  # seconds: three processes load the SDK
SERVER, CLIENT = 2, 3  # kinds of spans


class Received(NamedTuple):
    """A span as a collector gets it."""

    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, str]


class Collector(ThreadingHTTPServer):
    """Receives spans by OTLP over HTTP, as collectors do."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exports)
        self.spans: list[Received] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Exports(BaseHTTPRequestHandler):
    """One export."""

    server: Collector  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        self.server.spans += received(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the output of the tests clean."""


def received(export: Any) -> list[Received]:
    found: list[Received] = []
    for of_resource in export.resource_spans:
        about = {a.key: a.value.string_value for a in of_resource.resource.attributes}
        for scope in of_resource.scope_spans:
            found += [
                Received(
                    about["service.name"],
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    {a.key: a.value.string_value for a in span.attributes},
                )
                for span in scope.spans
            ]
    return found


@contextmanager
def collector() -> Generator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def chain(spans: list[Received], span: Received) -> list[tuple[str, str]]:
    """This span and those above it, with the service of each, from the top."""
    by_id = {one.id: one for one in spans}
    names = [(span.service, span.name)]
    while span.parent:
        span = by_id[span.parent]
        names.insert(0, (span.service, span.name))
    return names


def variables(collector: Collector, service: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": service}


def configuration(folder: Path, collector: Collector, era: str) -> Path:
    entry = {
        "command": sys.executable,
        "args": [str(HERE / "traced_server.py")],
        "env": variables(collector, "server"),
        "era": era,
    }
    boxes = {"dev": {"mcpServers": {"shop": entry}}}
    return write_config(folder, {"toolboxes": boxes, "tracing": True})


def run_host(mode: str, *place: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, str(HERE / "traced_host.py"), mode, *place],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done
    return done.stdout


MODERN = "2026-07-28"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("mode", ["legacy", MODERN])
@pytest.mark.parametrize("road", ["stdio", "http"])
def test_one_trace_leads_from_the_host_to_the_server(
    tmp_path: Path, road: str, mode: str, era: str
) -> None:
    with collector() as to:
        config = configuration(tmp_path, to, era)
        if road == "http":
            # Another name for us than for the host: both run in one environment.
            with serving(config, "0", variables(to, "workbench"), command=COMMAND) as command:
                said = run_host(mode, command.url, env=variables(to, "host"))
                command.process.terminate()
                command.process.wait(PATIENCE)
        else:
            start = tmp_path / "start.sh"
            start.write_text('#!/bin/sh\nOTEL_SERVICE_NAME=workbench exec "$@"\n', "utf-8")
            start.chmod(0o700)
            serve = [str(start), *COMMAND, "serve", "--config", str(config), "--attach", "never"]
            said = run_host(mode, *serve, env=variables(to, "host"))
        tops = lambda: [s for s in to.spans if s.name == "the work of an agent"]  # noqa: E731
        ends = lambda: [  # noqa: E731
            s
            for s in to.spans
            if s.service == "server" and s.attributes.get("mcp.method.name") == "tools/call"
        ]
        ours = lambda: [s for s in to.spans if s.service == "workbench"]  # noqa: E731
        assert within(PATIENCE, lambda: bool(tops() and ends() and len(ours()) == 2)), to.spans

    assert "Hello, Ada" in said
    (top,), (end,) = tops(), ends()
    path = chain(to.spans, end)
    assert end.trace == top.trace
    assert path[0] == ("host", "the work of an agent")
    assert [service for service, _ in path] == ["host", "host", "workbench", "workbench", "server"]
    assert [name for _, name in path[2:4]] == ["tools/call greet"] * 2
    assert sorted(span.kind for span in ours()) == [SERVER, CLIENT]
    assert {span.attributes["gen_ai.tool.name"] for span in ours()} == {"greet"}
