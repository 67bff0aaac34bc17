"""Parameters of calls and what stands in their results, on every transport."""

from __future__ import annotations

import json
from typing import Any

import msgspec

Json = dict[str, Any]
Message = Json  # one of JSON-RPC

MODERN = "2026-07-28"
LEGACY = "2025-11-25"  # the newest of them
META = "io.modelcontextprotocol/"
CODE = "mcp-workbench/code"
RETRY = "mcp-workbench/retry_after_s"
CLIENT: Json = {"name": "test-host", "version": "1"}

# The `_meta` of every modern request, and the parameters with which a legacy host opens.
ENVELOPE: Json = {
    META + "protocolVersion": MODERN,
    META + "clientInfo": CLIENT,
    META + "clientCapabilities": {},
}
INITIALIZE: Json = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}


def enveloped(params: Json) -> Json:
    """Parameters of a modern request; a `_meta` of their own wins."""
    return {**params, "_meta": {**ENVELOPE, **params.get("_meta", {})}}


def use_tool(
    server: str, tool: str, arguments: Any = None, *, toolbox: str = "dev", **more: Any
) -> Json:
    """Parameters of `tools/call` for a tool behind the meta-tool `use_tool`."""
    named: Json = {"tool": {"toolbox": toolbox, "server": server, "tool": tool}}
    if arguments is not None:
        named["arguments"] = arguments
    return {"name": "use_tool", "arguments": named, **more}


def open_toolbox(toolbox: str = "dev") -> Json:
    """Parameters of `tools/call` for the meta-tool `open_toolbox`."""
    return {"name": "open_toolbox", "arguments": {"toolbox_name": toolbox}}


def texts(result: Json) -> list[str]:
    """The texts of a result, block by block."""
    return [block["text"] for block in result["content"]]


def text(result: Json) -> str:
    """The text of a result that has one block."""
    (block,) = result["content"]
    return block["text"]


def json_text(result: Json) -> Any:
    """The JSON in the first text block: how the fixture servers answer."""
    return json.loads(result["content"][0]["text"])


def error_code(result: Json) -> str:
    """The code of an error of the workbench's own; empty where there is none."""
    return result.get("_meta", {}).get(CODE, "")


def exact_outcome(frame: bytes, id: int) -> tuple[str, bytes]:
    """`result` or `error` and its bytes; our frames have one form, so that nothing reads them before the test."""
    for member in ("result", "error"):
        head = b'{"jsonrpc":"2.0","id":%d,"%b":' % (id, member.encode())
        if frame.startswith(head) and frame.endswith(b"}"):
            return member, frame[len(head) : -1]
    raise AssertionError(f"no answer to {id}: {frame[:200]!r}")


def raw(value: Any) -> msgspec.Raw:
    """A value as the program keeps what it passes on unread."""
    return msgspec.Raw(value if isinstance(value, bytes) else msgspec.json.encode(value))
