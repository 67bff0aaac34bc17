"""Calls are traced by the conventions for MCP, below the trace of their host; off, nothing of it is loaded."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_ON,
    DEFAULT_OFF,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind, StatusCode

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import ServerError, WorkbenchError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.calls import PythonCall
from mcp_workbench.gateway.tracing import (
    CallTracing,
    ContextForwarding,
    read_headers,
    traced_by,
    tracing_of,
)
from tests.kit.clock import PATIENCE, until
from tests.kit.command import run_command
from tests.kit.config import entry, snapshot, spec, tool, write_config
from tests.kit.http_host import OwnPort, port
from tests.kit.inside import InsideWorkbench
from tests.kit.results import json_text, use_tool

TRACE, PARENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{PARENT_SPAN}-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"


class Traced:
    """A workbench whose spans are kept here."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = CallTracing(provider)

    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def pair(self) -> tuple[ReadableSpan, ReadableSpan]:
        """The span of the host's request, and that of ours to the server."""
        (server,) = [span for span in self.spans() if span.kind is SpanKind.SERVER]
        (client,) = [span for span in self.spans() if span.kind is SpanKind.CLIENT]
        return server, client

    @asynccontextmanager
    async def workbench(self, config: Snapshot | None = None) -> AsyncGenerator[InsideWorkbench]:
        config = config or snapshot(spec("a"))
        interceptors, first = traced_by(self.tracing)
        async with (
            asyncio.timeout(PATIENCE),
            InsideWorkbench(config, interceptors=interceptors) as bench,
        ):
            bench.gateway.first_interceptors = first
            yield bench


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def is_sampled(parent: str) -> bool:
    return bool(int(parent.rpartition("-")[2], 16) & 1)


async def called(
    bench: InsideWorkbench, meta: dict[str, Any] | None = None, name: str = "echo"
) -> dict[str, Any]:
    """The `_meta` that the server got."""
    raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in (meta or {}).items()}
    request = CallRequest(tool("a", name), {"arguments": msgspec.Raw(b"{}")}, raw)
    result = await PythonCall(bench.view, request, None).result()
    return json_text(result).get("_meta", {})


async def test_a_call_has_two_spans_and_its_server_gets_the_second() -> None:
    traced = Traced()
    async with traced.workbench() as bench:
        meta = await called(bench)

    server, client = traced.pair()
    trace, span = ids(client)
    assert meta["traceparent"].startswith(f"00-{trace}-{span}-")
    assert is_sampled(meta["traceparent"])
    assert ids(server)[0] == trace
    assert client.parent is not None
    assert f"{client.parent.span_id:016x}" == ids(server)[1]
    assert server.parent is None
    assert server.name == client.name == "tools/call echo"
    common = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "mcp_workbench.toolbox": "dev",
        "mcp_workbench.server": "a",
    }
    assert common.items() <= attributes(client).items()
    assert common.items() <= attributes(server).items()
    assert attributes(client)["network.transport"] == "pipe"
    assert attributes(client)["mcp.protocol.version"]
    assert attributes(client)["jsonrpc.request.id"]
    assert server.status.status_code is StatusCode.UNSET
    assert server.start_time is not None
    assert client.start_time is not None
    assert server.end_time is not None
    assert client.end_time is not None
    assert server.start_time <= client.start_time <= client.end_time <= server.end_time


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_trace_of_the_host_goes_on_at_servers_of_both_eras(era: str) -> None:
    traced = Traced()
    config = snapshot(spec("a", "modern", era="modern") if era == "modern" else spec("a"))
    async with traced.workbench(config) as bench:
        meta = await called(
            bench, {"traceparent": PARENT, "tracestate": "a=1", "baggage": "user=x", "own": 7}
        )

    server, client = traced.pair()
    assert ids(server)[0] == ids(client)[0] == TRACE
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == PARENT_SPAN
    assert meta["traceparent"] == f"00-{TRACE}-{ids(client)[1]}-01"
    assert (meta["tracestate"], meta["baggage"], meta["own"]) == ("a=1", "user=x", 7)


@pytest.mark.parametrize(
    "wrong", ["", "nonsense", 7, None, {}, f"00-{'0' * 32}-{PARENT_SPAN}-01", "x" * 100_000]
)
async def test_a_context_that_is_none_begins_a_new_trace(wrong: Any) -> None:
    traced = Traced()
    async with traced.workbench() as bench:
        meta = await called(bench, {"traceparent": wrong})

    server, client = traced.pair()
    assert server.parent is None
    assert meta["traceparent"].split("-")[1:3] == list(ids(client))


# Outcomes


FORGED = "a=1\n\x1b[31mforged line"


@pytest.mark.parametrize(
    "state",
    [
        FORGED,
        "x" * 8000,
        "a=1,a=2",
        ",".join(f"k{n}=v" for n in range(40)),
        "a=\u202e",
        "A=1",
        "a=",
    ],
)
async def test_what_is_no_state_of_a_trace_is_not_written_to_the_log(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    traced = Traced()
    async with traced.workbench() as bench:
        await called(bench, {"traceparent": PARENT, "tracestate": state})

    assert ids(traced.pair()[0])[0] == TRACE
    assert caplog.records == []


async def test_the_state_of_a_trace_goes_on() -> None:
    state = "vendor=some value,tenant@system=1:2;3"
    traced = Traced()
    async with traced.workbench() as bench:
        meta = await called(bench, {"traceparent": PARENT, "tracestate": state})

    assert meta["tracestate"] == state


async def test_errors_are_marked_by_their_kind() -> None:
    traced = Traced()
    config = snapshot(spec("a"), spec("dead", "stderr_exit"))
    async with traced.workbench(config) as bench:
        failed = {"result": '{"content":[],"isError":true}'}
        refusal = {"error": '{"code":-32000,"message":"no"}'}
        await bench.use_tool(tool("a", "result"), failed)
        for server, name in (("a", "error"), ("a", "no_such"), ("dead", "echo")):
            with suppress(WorkbenchError, ServerError):
                await bench.use_tool(tool(server, name), refusal)

    found = [
        (span.kind.name, attributes(span).get("error.type"), span.status.status_code.name)
        for span in traced.spans()
    ]
    assert found == [
        ("CLIENT", "tool_error", "ERROR"),
        ("SERVER", "tool_error", "ERROR"),
        ("CLIENT", "server_error", "ERROR"),
        ("SERVER", "server_error", "ERROR"),
        ("SERVER", "unknown_tool", "ERROR"),
        ("SERVER", "connect_failed", "ERROR"),
    ]
    assert attributes(traced.spans()[2])["rpc.response.status_code"] == "-32000"


async def test_a_call_that_is_sent_again_has_a_span_for_each_attempt(tmp_path: Path) -> None:
    traced = Traced()
    hints = {"readOnlyHint": True}
    once = {"name": "die_once", "inputSchema": {"type": "object"}, "annotations": hints}
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([once]))
    async with traced.workbench(snapshot(spec("a", f"tools={tools}"))) as bench:
        await bench.use_tool(tool("a", "die_once"), {"file": str(tmp_path / "died")})

    kinds = [(span.kind.name, span.status.status_code.name) for span in traced.spans()]
    assert kinds == [("CLIENT", "ERROR"), ("CLIENT", "UNSET"), ("SERVER", "UNSET")]


# Sampling


async def test_with_sampling_off_calls_stay_as_they_are() -> None:
    traced = Traced(DEFAULT_OFF)
    async with traced.workbench() as bench:
        assert "traceparent" not in await called(bench)

    assert traced.spans() == ()


async def test_a_sampled_parent_is_followed_although_roots_are_off() -> None:
    traced = Traced(DEFAULT_OFF)
    async with traced.workbench() as bench:
        await called(bench, {"traceparent": PARENT})

    assert len(traced.spans()) == 2


async def test_a_call_that_is_not_sampled_tells_its_server_so() -> None:
    traced = Traced(TraceIdRatioBased(0))
    async with traced.workbench() as bench:
        meta = await called(bench)

    assert not is_sampled(meta["traceparent"])
    assert traced.spans() == ()


# Over HTTP


@asynccontextmanager
async def traced_port(traced: Traced) -> AsyncGenerator[OwnPort]:
    """A port as the configuration makes it. The SDK keeps the spans here as well."""
    config = msgspec.structs.replace(snapshot(spec("fixture")), tracing=True)
    async with port(config) as opened:
        (tracing,) = [
            one for one in opened.front.gateway.interceptors if isinstance(one, CallTracing)
        ]
        tracing.provider.add_span_processor(SimpleSpanProcessor(traced.exporter))
        yield opened


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent beyond this machine: nobody listens there."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("headers", "meta", "trace"),
    [
        ({"traceparent": PARENT}, {}, TRACE),
        ({"traceparent": OTHER}, {"traceparent": PARENT}, TRACE),
        ({"traceparent": PARENT}, {"traceparent": "nonsense"}, TRACE),
    ],
)
async def test_the_header_counts_unless_meta_has_one(
    modern: bool, headers: dict[str, str], meta: dict[str, str], trace: str
) -> None:
    traced = Traced()
    async with traced_port(traced) as opened:
        params = {**use_tool("fixture", "echo"), "_meta": meta}
        if modern:
            answer = await opened.ask_modern("tools/call", params, **headers)
        else:
            session = await opened.open()
            answer = await session.post(session.ask("tools/call", params), **headers)
        await until(lambda: len(traced.spans()) == 2)

    server, client = traced.pair()
    assert ids(server)[0] == trace
    assert server.parent is not None
    assert f"{server.parent.span_id:016x}" == PARENT_SPAN
    assert answer.json_text["_meta"]["traceparent"].split("-")[1:3] == [trace, ids(client)[1]]
    assert attributes(server)["network.transport"] == "tcp"
    assert attributes(server)["network.protocol.name"] == "http"
    assert attributes(server)["mcp.protocol.version"]


async def test_the_next_request_on_a_connection_does_not_have_the_context_of_the_last() -> None:
    traced = Traced()
    async with traced_port(traced) as opened:
        peer = await opened.connect()
        request = opened.modern("tools/call", use_tool("fixture", "echo"))
        body, headers = request
        for more in ({"traceparent": PARENT}, {}, {"traceparent": OTHER}):
            peer.send(opened.request(body, {**headers, **more}))
            await peer.answer()
        await until(lambda: len(traced.spans()) == 6)

    traces = [ids(span)[0] for span in traced.spans() if span.kind is SpanKind.SERVER]
    assert traces[0] == TRACE
    assert traces[1] not in (TRACE, "1" * 32)
    assert traces[2] == "1" * 32


@pytest.mark.parametrize(
    ("meta", "expected"),
    [({}, PARENT), ({"traceparent": OTHER}, OTHER), ({"traceparent": 7}, PARENT)],
)
async def test_always_off_records_nothing_and_hands_the_context_of_the_host_on(
    monkeypatch: pytest.MonkeyPatch, meta: dict[str, Any], expected: str
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    config = msgspec.structs.replace(snapshot(spec("fixture")), tracing=True)
    async with port(config) as opened:
        params = {**use_tool("fixture", "echo"), "_meta": meta}
        answer = await opened.ask_modern("tools/call", params, traceparent=PARENT)
        plain = await opened.ask_modern("tools/call", use_tool("fixture", "echo"))
        (only,) = opened.front.gateway.interceptors

    assert isinstance(only, ContextForwarding)
    assert answer.json_text["_meta"]["traceparent"] == expected
    assert "traceparent" not in plain.json_text.get("_meta", {})


def test_only_valid_headers_of_a_bounded_size_count() -> None:
    good = {b"traceparent": PARENT.encode(), b"tracestate": b"a=1", b"other": b"x"}

    assert read_headers(good) == {"traceparent": PARENT, "tracestate": "a=1"}
    assert read_headers({b"tracestate": b"a=1"}) == {}
    assert read_headers({b"traceparent": b"\xff\xfe"}) == {}
    assert read_headers({**good, b"baggage": b"x" * 9000}).keys() == {"traceparent", "tracestate"}


# The configuration


def test_the_variables_of_opentelemetry_can_switch_it_off() -> None:
    assert tracing_of({"OTEL_SDK_DISABLED": "true"}) == ((), ())
    assert tracing_of({"OTEL_TRACES_EXPORTER": "none"}) == ((), ())


LOADED = """
import asyncio, json, sys
from mcp_workbench import ToolIdentifier, Workbench, load_config
async def main():
    async with Workbench(load_config(sys.argv[1])) as bench:
        await bench.use_tool(ToolIdentifier("dev", "a", "echo"), {})
asyncio.run(main())
print(json.dumps([name for name in sys.modules if "opentelemetry" in name or name.endswith("call_meter")]))
"""


@pytest.mark.parametrize("on", [False, True])
def test_nothing_of_it_is_loaded_while_it_is_off(tmp_path: Path, on: bool) -> None:
    boxes = {"dev": {"mcpServers": {"a": entry()}}}
    config = write_config(tmp_path, {"toolboxes": boxes, **({"tracing": True} if on else {})})
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(config)], capture_output=True, text=True, timeout=60
    )

    assert bool(json.loads(done.stdout)) is on, done


WITHOUT_EXTRA = """
import sys
sys.modules["opentelemetry"] = None
sys.argv = ["mcp-workbench", *sys.argv[1:]]
from mcp_workbench.cli.main import main
main()
"""


def test_without_the_extra_check_says_what_to_install_and_calls_still_work(tmp_path: Path) -> None:
    boxes = {"dev": {"mcpServers": {"a": entry()}}}
    write_config(tmp_path, {"toolboxes": boxes, "tracing": True})

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_EXTRA, *argv],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    checked, called = run("check"), run("call", "dev/a/echo", "text=hi", "--attach", "never")

    assert "WB-CONF-066" in checked.stdout + checked.stderr
    assert "mcp-workbench-gateway[otel]" in checked.stdout + checked.stderr
    assert called.returncode == 0, called
    assert "no traces are sent" in called.stderr


def test_a_collector_that_is_not_there_delays_no_end(tmp_path: Path) -> None:
    boxes = {"dev": {"mcpServers": {"a": entry()}}}
    write_config(tmp_path, {"toolboxes": boxes, "tracing": True})
    done = run_command(
        "call",
        "dev/a/echo",
        "text=hi",
        cwd=tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
    )

    assert done.status == 0
    assert "hi" in done.out
