"""What hosts read: instructions, error results, the descriptions of our own tools."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from mcp_workbench.core.catalogue import Stale
from mcp_workbench.core.errors import CallFailed, WorkbenchError
from mcp_workbench.core.names import ToolIdentifier, generate_tool_name
from mcp_workbench.core.spec import Snapshot, ToolboxSpec
from mcp_workbench.wire import envelope

INSTRUCTIONS_LIMIT = 2000  # characters; hosts cut at 2 KB
DESCRIPTION_LIMIT = 160  # characters of one toolbox's description in the instructions
# In `_meta` of an error result, for programs: the reason, and the seconds before which there is no
# point in trying again, where that is known.
CODE_KEY = "mcp-workbench/code"
RETRY_KEY = "mcp-workbench/retry_after_s"
# In `_meta` of a list of tools: the servers whose tools are those of some time ago.
STALE_KEY = "mcp-workbench/stale"
DRAINING = "draining"
ENDING = (
    "The workbench is ending and begins nothing new. Nothing was done; try again when it is back."
)

_PROXY_HOW = (
    "Use `open_toolbox` to connect to a toolbox, then `use_tool` to invoke tools. Shorter: "
    "`search_tools` says which tools of all toolboxes do something, and how to call them; then "
    "`use_tool` at once, nothing has to be opened first."
)
_DYNAMIC_HOW = "Use `open_toolbox` to connect to a toolbox; its tools then appear as {toolbox}__{server}__{tool}."

_ALL_SHOWN_HOW = (
    "Tools are named {toolbox}__{server}__{tool}; `open_toolbox` lists those of one toolbox."
)


def instructions(snapshot: Snapshot, *, modern: bool = False) -> str:
    """What a host is told at the start, in at most 2,000 characters however much there is."""
    head = _head(snapshot, modern=modern)
    tail = _example(snapshot)
    room = (
        INSTRUCTIONS_LIMIT - len(head) - len(tail) - 120
    )  # kept for the line that counts the rest
    lines: list[str] = []
    boxes = list(snapshot.toolboxes.values())
    for box in boxes:
        line = _line(box)
        if len(line) + 1 > room:
            break
        lines.append(line)
        room -= len(line) + 1
    if rest := len(boxes) - len(lines):
        lines.append(
            f"- and {rest} more: a wrong toolbox_name is answered with the nearest right one; "
            "`mcp-workbench tools` lists all"
        )
    return "\n".join([head, *lines, "", tail])


def _head(snapshot: Snapshot, *, modern: bool) -> str:
    how = _PROXY_HOW
    if snapshot.naming == "bare":
        how = "Their tools are listed under their own names."
    elif snapshot.tool_mode == "dynamic":
        how = _ALL_SHOWN_HOW if modern else _DYNAMIC_HOW
    demo = (
        ""
        if snapshot.origin
        else " This is the built-in demo; point WORKBENCH_CONFIG at a file of your own."
    )
    return f"MCP Workbench gives access to many MCP servers, grouped in toolboxes. {how}{demo}\n\nToolboxes:"


def _line(box: ToolboxSpec) -> str:
    count = len(box.servers)
    servers = "1 server" if count == 1 else f"{count} servers"
    words = " ".join(box.description.split())
    if len(words) > DESCRIPTION_LIMIT:
        words = words[: DESCRIPTION_LIMIT - 1] + "…"
    return f"- {box.name} ({servers})" + (f": {words}" if words else "")


def _example(snapshot: Snapshot) -> str:
    tool = _some_tool(snapshot)
    if snapshot.tool_mode == "dynamic":
        name = generate_tool_name(tool.toolbox, tool.server, tool.tool)
        call: dict[str, Any] = {"name": name, "arguments": _arguments(snapshot)}
        return f"Example tool invocation:\n{_pretty(call)}"
    call = {
        "tool": {"toolbox": tool.toolbox, "server": tool.server, "tool": tool.tool},
        "arguments": _arguments(snapshot),
    }
    return f"Example tool invocation:\n{_pretty(call)}"


def _arguments(snapshot: Snapshot) -> dict[str, Any]:
    return {"path": "/path/to/file"} if snapshot.origin else {"a": 2, "b": 3}


def _some_tool(snapshot: Snapshot) -> ToolIdentifier:
    """An identifier whose first two parts are real where that keeps the example short."""
    for box in snapshot.toolboxes.values():
        for server in box.servers:
            if len(box.name) + len(server) <= 100:
                return ToolIdentifier(box.name, server, "read_file" if snapshot.origin else "add")
    return ToolIdentifier("dev", "filesystem", "read_file")


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


class Draining(WorkbenchError):
    """We are ending, and begin nothing new."""

    code = DRAINING


def draining() -> Draining:
    return Draining(ENDING)


def draining_error() -> tuple[int, str, dict[str, str]]:
    """The same for a request that is no call: code, message and data."""
    return envelope.SERVER_ERROR, ENDING, {CODE_KEY: DRAINING}


def text_result(text: str) -> bytes:
    return msgspec.json.encode({"content": [{"type": "text", "text": text}]})


def stale_meta(stale: tuple[Stale, ...]) -> bytes:
    """An object that says whose tools are those of some time ago, if any are."""
    return msgspec.json.encode({"_meta": {STALE_KEY: stale}} if stale else {})


def error_result(error: WorkbenchError, *warnings: str) -> bytes:
    """An error as the model reads it: the contract's text first, hints in blocks of their own."""
    return _error_result(_for_programs(error), error.message, error.hint, *warnings)


def error_texts(code: str, *texts: str) -> bytes:
    return _error_result({CODE_KEY: code}, *texts)


def failed_call(error: WorkbenchError, text: str) -> bytes:
    """The same for a call, in the words of its mode."""
    return _error_result(_for_programs(error), text, error.hint)


def refused_request(error: WorkbenchError, text: str) -> bytes:
    """The same for a request that is no call: an error, with data where that says when to come again."""
    about = None if error.retry_after is None else _for_programs(error)
    return envelope.error_object(envelope.INTERNAL_ERROR, text, about)


def _for_programs(error: WorkbenchError) -> dict[str, Any]:
    told: dict[str, Any] = {CODE_KEY: error.code}
    if error.retry_after is not None:
        told[RETRY_KEY] = max(math.ceil(error.retry_after), 1)
    return told


def _error_result(meta: dict[str, Any], *texts: str) -> bytes:
    return msgspec.json.encode(
        {
            "content": [{"type": "text", "text": text} for text in texts if text],
            "isError": True,
            "_meta": meta,
        }
    )


def flat_text(error: WorkbenchError, tool: ToolIdentifier) -> str:
    """The wording for a call by flat name: the tool stands in front once its server is known."""
    if isinstance(error, CallFailed):  # has it in front already
        return error.message
    if error.code in ("unknown_toolbox", "unknown_server"):
        return f"Error: {error.message}"
    return f"[{tool}] Error: {error.message}"


def name_list(names: Iterable[str], limit: int) -> str:
    """Names joined by commas, as many as fit."""
    told = ""
    for name in names:
        if len(told) + len(name) + 2 > limit:
            return f"{told}, …" if told else "…"
        told = f"{told}, {name}" if told else name
    return told
