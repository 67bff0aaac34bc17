"""A server of the Python SDK that traces itself."""

# pyright: basic
from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
server = MCPServer("shop")


@server.tool()
def greet(name: str) -> str:
    return f"Hello, {name}"


server.run("stdio")
