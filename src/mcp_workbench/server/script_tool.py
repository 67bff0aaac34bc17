"""The definition of `run_script`. It names no tools, so it never changes."""

from __future__ import annotations

from typing import Any

from mcp_workbench.server.parse import RUN_SCRIPT

_DESCRIPTION = (
    'Run a short Python program that calls tools: `r = await call("{name}", arg=1)` returns data '
    "(parsed JSON, or text). Best when many calls are needed, or little of their results. "
    "At once: `await asyncio.gather(call(…), call(…))`. A failed call raises RuntimeError; OSError: may have run. "
    "Only what it prints and the value of its last line come back. No files or network, no yield, del or class bases."
)


def run_script_definition(hints: dict[str, Any], *, native: bool = False) -> dict[str, Any]:
    """`native`: for hosts that know tools by their flat names."""
    name = "toolbox__server__tool" if native else "toolbox/server/tool"
    return {
        "name": RUN_SCRIPT,
        "title": "Run a script",
        "description": _DESCRIPTION.format(name=name),
        "inputSchema": {
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
        },
        "_meta": hints,
    }
