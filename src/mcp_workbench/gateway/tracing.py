"""Traces of calls (`tracing`): two spans for each, by OpenTelemetry's semantic conventions for MCP.

One span is the host's request to us, the other our request to the server, a child of the first. The parent is
what the host has sent as `traceparent`, in `_meta` or else in a header of HTTP; the server gets ours in `_meta`,
which both eras have. A call that is refused before it has a route has the first span only.

Loads the OpenTelemetry SDK: only if `tracing` is true. Its own variables (`OTEL_…`) say where traces go, how they
are sampled and what the service is called.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mcp_workbench import __version__
from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.spec import HttpEndpoint
from mcp_workbench.gateway.call_meter import AnswerClock
from mcp_workbench.gateway.call_summary import LONGEST_NAME, summary_of
from mcp_workbench.gateway.interceptors import CallOutcome, Interceptor, Rejected
from mcp_workbench.gateway.trace_export import new_exporter
from mcp_workbench.upstream.connection import Ready

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call

log = logging.getLogger(__name__)

NAME = "mcp-workbench"
PARENT, STATE, BAGGAGE = "traceparent", "tracestate", "baggage"
KEYS = (PARENT, STATE, BAGGAGE)
LONGEST = 8192  # bytes of one of these; the standards allow as much for baggage
FLUSH = 1.0  # seconds for the last spans, at the end
_OFF = "AlwaysOffSampler"  # as it describes itself
_NOTHING: Mapping[str, str] = {}
_DOORS = {"stdio": "pipe", "daemon": "pipe", "http": "tcp"}
_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
MOST_MEMBERS = 32  # of `tracestate`
_KEY = r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
_MEMBER = re.compile(rf"({_KEY})=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]")

# What came in the headers of the HTTP request that is being handled.
HEADERS: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=_NOTHING)


def read_headers(headers: Mapping[bytes, bytes]) -> Mapping[str, str]:
    """Return the trace context in the headers of a request; nothing without a valid `traceparent`."""
    parent = headers.get(PARENT.encode())
    if parent is None or not _PARENT.fullmatch(parent.decode("latin-1")):
        return _NOTHING
    found = {key: headers.get(key.encode(), b"") for key in KEYS}
    return {k: v.decode("latin-1") for k, v in found.items() if v and len(v) <= LONGEST}


class CallTrace(NamedTuple):
    """The spans of one call."""

    host: Span  # from the host to us
    server: Span  # from us to the server
    sent: float  # when the call had been sent before; one that is sent again has another span


class CallTracing(Interceptor):
    """Starts the spans when a call is sent, and ends them after its answer was sent."""

    observes_only = True

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer(NAME, __version__)
        self._propagator = TraceContextTextMapPropagator()
        sampler = provider.sampler.get_description()
        self._roots = not sampler.startswith(f"ParentBased{{root:{_OFF}")

    # Sending

    def before(self, call: Call) -> None:
        carrier, in_meta = _received(call)
        if not carrier and not self._roots:
            return
        trace: CallTrace | None = call.trace
        if trace is None:
            host = self._start_host_span(call, self._parent(carrier))
        else:
            host = trace.host
            if call.sent != trace.sent:  # it is sent again; otherwise it has only waited
                trace.server.set_status(StatusCode.ERROR)
                trace.server.end()
        server = self._start_server_span(call, host)
        call.trace = CallTrace(host, server, call.sent)
        rest = _NOTHING if in_meta else carrier
        _hand_on(call, {**rest, **_carried(server.get_span_context())})

    def _parent(self, carrier: Mapping[str, str]) -> Context:
        if not carrier:
            return Context()
        state = carrier.get(STATE, "")
        if state and not _is_state(state):  # the SDK would write it to the log
            carrier = {PARENT: carrier[PARENT]}
        return self._propagator.extract(carrier, Context())

    def _start_host_span(self, call: Call, parent: Context) -> Span:
        door = call.door
        attributes = _attributes(call)
        if door in _DOORS:
            attributes["network.transport"] = _DOORS[door]
        if door == "http":
            attributes["network.protocol.name"] = "http"
        if call.revision:
            attributes["mcp.protocol.version"] = call.revision
        if request_id := getattr(call, "id", b""):
            attributes["jsonrpc.request.id"] = _cut(bytes(request_id).decode(errors="replace"))
        begun = time.time_ns() - int((time.monotonic() - call.started) * 1e9)
        return self._tracer.start_span(
            _span_name(call), parent, SpanKind.SERVER, attributes, start_time=begun
        )

    def _start_server_span(self, call: Call, host: Span) -> Span:
        attributes = _attributes(call)
        connection = call.connection
        if connection is not None:
            attributes |= _place(connection.spec.target)
            if isinstance(state := connection.state, Ready):
                attributes["mcp.protocol.version"] = state.agreed.revision
        return self._tracer.start_span(
            _span_name(call), set_span_in_context(host, Context()), SpanKind.CLIENT, attributes
        )

    # Outcome

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        trace: CallTrace | None = call.trace
        if trace is None:
            self._refused(call, outcome)
            return outcome
        now = time.time_ns()
        late = int((time.monotonic() - call.answered) * 1e9) if call.answered else 0
        trace.server.set_attribute("jsonrpc.request.id", str(call.number))
        for span, ended in ((trace.server, now - late), (trace.host, now)):
            _end(span, call, outcome, ended)
        return outcome

    def _refused(self, call: Call, outcome: CallOutcome) -> None:
        """Record a call that was never about to be sent."""
        carrier, _ = _received(call)
        if not carrier and not self._roots:
            return
        span = self._start_host_span(call, self._parent(carrier))
        _end(span, call, outcome, time.time_ns())

    def close(self) -> None:
        """Send what is left, without waiting long: a collector may be gone, and hosts wait for our end."""
        flush = threading.Thread(target=self.provider.shutdown, name="last spans", daemon=True)
        flush.start()
        flush.join(FLUSH)


class ContextForwarding(Interceptor):
    """Hands the context on that came in headers, where nothing is ever recorded."""

    def before(self, call: Call) -> None:
        if HEADERS.get():
            carrier, in_meta = _received(call)
            if not in_meta:
                _hand_on(call, carrier)


class Tracing(NamedTuple):
    """Interceptors of all calls; `first` see outcomes before anything has changed them."""

    interceptors: tuple[Interceptor, ...] = ()
    first: tuple[Interceptor, ...] = ()


def tracing_of(environ: Mapping[str, str]) -> Tracing:
    """Return the interceptors that trace calls; none if the variables of OpenTelemetry say so."""
    disabled = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if disabled or environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return Tracing()
    named = "OTEL_SERVICE_NAME" in environ or f"{SERVICE_NAME}=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if named else {SERVICE_NAME: NAME})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if provider.sampler.get_description() == _OFF:
        return Tracing((ContextForwarding(),))
    provider.add_span_processor(BatchSpanProcessor(new_exporter()))
    return traced_by(CallTracing(provider))


def traced_by(tracing: CallTracing) -> Tracing:
    """Return this with what notes when a server has answered."""
    return Tracing((tracing,), (AnswerClock(),))


# Spans


def _span_name(call: Call) -> str:
    request = call.request
    is_tool = request.method == TOOLS_CALL
    return f"{request.method} {_cut(request.tool.tool)}" if is_tool else request.method


def _attributes(call: Call) -> dict[str, Any]:
    request = call.request
    attributes: dict[str, Any] = {
        "mcp.method.name": request.method,
        "mcp_workbench.toolbox": _cut(request.tool.toolbox),
        "mcp_workbench.server": _cut(request.tool.server),
    }
    if request.method == TOOLS_CALL:
        attributes["gen_ai.operation.name"] = "execute_tool"
        attributes["gen_ai.tool.name"] = _cut(request.tool.tool)
    elif request.method == "prompts/get" and "name" in request.params:
        attributes["gen_ai.prompt.name"] = _cut(_text(request.params["name"]))
    elif "uri" in request.params:
        attributes["mcp.resource.uri"] = _cut(_text(request.params["uri"]))
    return attributes


def _place(target: object) -> dict[str, Any]:
    """Where the server is."""
    if not isinstance(target, HttpEndpoint):
        return {"network.transport": "pipe"}
    from urllib.parse import urlsplit

    place: dict[str, Any] = {"network.transport": "tcp", "network.protocol.name": "http"}
    try:
        parts = urlsplit(target.url)
        if parts.hostname and "$" not in parts.netloc:
            place["server.address"] = parts.hostname
        if parts.port:
            place["server.port"] = parts.port
    except ValueError:  # a variable in place of a port
        return place
    return place


def _end(span: Span, call: Call, outcome: CallOutcome, at: int) -> None:
    if span.is_recording():
        word, is_error, _, size = summary_of(call, outcome)
        if is_error:
            span.set_attribute("error.type", word)
            span.set_status(StatusCode.ERROR)
        elif word != "ok":
            span.set_attribute("mcp_workbench.outcome", word)
        if isinstance(outcome, Rejected):
            span.set_attribute("rpc.response.status_code", str(outcome.read().code))
        span.set_attribute("mcp_workbench.result_bytes", size)
    span.end(at)


# The context, as text


def _received(call: Call) -> tuple[Mapping[str, str], bool]:
    """Return the host's trace context, and whether `_meta` has it: that counts more than a header."""
    meta = call.request.meta
    if PARENT in meta:
        found = {key: _text(meta[key]) for key in KEYS if key in meta}
        if _PARENT.fullmatch(found[PARENT]):
            return found, True
    return HEADERS.get(), False


def _carried(context: SpanContext) -> dict[str, str]:
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header() if context.trace_state else ""
    return {PARENT: parent, STATE: state} if state else {PARENT: parent}


def _hand_on(call: Call, carrier: Mapping[str, str]) -> None:
    """Send this with the call."""
    added = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in carrier.items()}
    call.request = msgspec.structs.replace(call.request, meta={**call.request.meta, **added})


def _text(raw: msgspec.Raw) -> str:
    if len(raw) > LONGEST:
        return ""
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""


def _is_state(text: str) -> bool:
    """Whether this is a `tracestate`, as W3C defines it."""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    found = [_MEMBER.fullmatch(member) for member in members[: MOST_MEMBERS + 1]]
    keys = {match[1] for match in found if match is not None}
    return len(members) == len(keys) <= MOST_MEMBERS


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
