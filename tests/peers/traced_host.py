"""A host of the Python SDK that traces itself: traced_host.py MODE URL | traced_host.py MODE COMMAND…"""

# pyright: basic
from __future__ import annotations

import os
import sys

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

MODE, *WORDS = sys.argv[1:]


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    place = WORDS[0]
    if not place.startswith("http"):
        parameters = StdioServerParameters(command=place, args=WORDS[1:], env=dict(os.environ))
        place = stdio_client(parameters)
    tool = {"toolbox": "dev", "server": "shop", "tool": "greet"}
    arguments = {"tool": tool, "arguments": {"name": "Ada"}}
    async with Client(place, mode=MODE, cache=None) as client:
        with trace.get_tracer("host").start_as_current_span("the work of an agent"):
            result = await client.call_tool("use_tool", arguments)
    print(result.model_dump_json())
    provider.shutdown()


anyio.run(main)
