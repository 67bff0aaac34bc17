"""Results of our own: those that open a conversation, instructions, errors, results in parts.

`cost` builds the same results without an event loop, so this module does not load asyncio.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Collection, Generator, Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mcp_workbench.core.errors import CallFailed, WorkbenchError
from mcp_workbench.core.skills import EXTENSION as SKILLS
from mcp_workbench.core.spec import Snapshot, ToolboxSpec, ToolIdentifier, generate_tool_name
from mcp_workbench.protocol.extensions import TASKS
from mcp_workbench.protocol.handshake import (
    IMPLEMENTATION,
    MODERN,
    NEWEST_LEGACY,
    STAMPS,
    legacy_answer,
)
from mcp_workbench.protocol.translation import complete
from mcp_workbench.server.example_call import LONGEST_NAME, ExampleCall, example_call
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View

Answer = TypeVar("Answer")

STATIC_TTL = 60_000  # milliseconds that a modern host may cache what changes with the file alone
INSTRUCTIONS_LIMIT = 2000  # characters; hosts cut at 2 KB
COUNT_LIMIT = 120  # characters of the line that counts the toolboxes that do not fit
DESCRIPTION_LIMIT = 160  # characters of one toolbox's description in the instructions
NAMES_LIMIT = 400  # characters of names of toolboxes or servers in a list
# Of the names of one toolbox's servers in the instructions: the largest with which all toolboxes fit.
NAMES_LIMITS = (NAMES_LIMIT, 200, 120, 80, 40, 0)
SLICE = 0.02  # seconds of work before other tasks run
LONG = 1 << 20  # bytes that are joined in a turn of their own
PIECE = 64 << 10  # bytes of a text that are quoted at once
# In `_meta` of an error result, for programs: the error code, and the seconds to wait before a retry,
# where that is known.
CODE_KEY = "mcp-workbench/code"
RETRY_KEY = "mcp-workbench/retry_after_s"
DRAINING = "draining"
OVERLOADED = "overloaded"
ENDING = (
    "The workbench is ending and begins nothing new. Nothing was done; try again when it is back."
)
# Everything that upstream servers may support: which of it they do is known once they connect.
_CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},  # in proxy mode too: open_toolbox names the toolboxes
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
_TASKS: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
_PROXY_HOW = (
    "Use `open_toolbox` to connect to a toolbox, then `use_tool` to invoke tools. Shorter: "
    "`search_tools` says which tools of all toolboxes do something, and how to call them; then "
    "`use_tool` at once, nothing has to be opened first."
)
_DYNAMIC_HOW = "Use `open_toolbox` to connect to a toolbox; its tools then appear as {toolbox}__{server}__{tool}."
_ALL_SHOWN_HOW = (
    "Tools are named {toolbox}__{server}__{tool}; `open_toolbox` lists those of one toolbox."
)


# Opening a conversation


def initialize_result(offered: str, view: View) -> tuple[str, bytes]:
    """The negotiated revision, and the result of `initialize`."""
    revision = legacy_answer(offered)
    result = {
        "protocolVersion": revision,
        "capabilities": _legacy_capabilities(view, revision),
        "serverInfo": IMPLEMENTATION,
        "instructions": _instructions(view),
    }
    return revision, msgspec.json.encode(result)


def discover_result(view: View) -> bytes:
    """The result of `server/discover`."""
    snapshot = view.snapshot
    result: dict[str, Any] = {
        "supportedVersions": [MODERN],
        "capabilities": _modern_capabilities(view),
        "instructions": _instructions(view, modern=True),
        "ttlMs": STATIC_TTL,
        "cacheScope": cache_scope(snapshot),
    }
    return complete(msgspec.json.encode(result), STAMPS)


def _modern_capabilities(view: View) -> dict[str, Any]:
    known = _capabilities(view, modern=True)
    return {**known, "extensions": {**known.get("extensions", {}), TASKS: {}}}


def _legacy_capabilities(view: View, revision: str) -> dict[str, Any]:
    """With tasks where hosts call the tools of servers themselves, by their names."""
    known = _capabilities(view)
    native = view.snapshot.tool_mode == "dynamic" and revision == NEWEST_LEGACY
    return {**known, "tasks": _TASKS} if native else known


def _capabilities(view: View, *, modern: bool = False) -> dict[str, Any]:
    if view.only_server is None and not modern:
        return _CAPABILITIES
    from mcp_workbench.gateway.server_extensions import offered_extensions, skill_settings

    extensions = offered_extensions(view)
    if modern and (skills := skill_settings(view)) is not None:
        extensions = {**extensions, SKILLS: skills}
    return {**_CAPABILITIES, "extensions": extensions} if extensions else _CAPABILITIES


def cache_scope(snapshot: Snapshot) -> str:
    """`public` if every principal sees the same of us, with or without a token."""
    http = snapshot.http
    return "private" if snapshot.private or http.token or http.tokens else "public"


def _instructions(view: View, *, modern: bool = False) -> str:
    example = example_call(view.snapshot, view.remembered)
    return instructions(view.snapshot, modern=modern, example=example)


def instructions(
    snapshot: Snapshot, *, modern: bool = False, example: ExampleCall | None = None
) -> str:
    """The `instructions` of our server, at most 2,000 characters however many toolboxes there are."""
    head = _head(snapshot, modern=modern)
    tail = _example(snapshot, example or _some_call(snapshot))
    room = INSTRUCTIONS_LIMIT - len(head) - len(tail) - COUNT_LIMIT
    boxes = list(snapshot.toolboxes.values())
    lines: list[str] = []
    for names_limit in NAMES_LIMITS:
        lines = list(_fitting(snapshot, room, names_limit))
        if len(lines) == len(boxes):
            break
    if rest := len(boxes) - len(lines):
        lines.append(
            f"- and {rest} more: a wrong toolbox_name is answered with the nearest right one; "
            "`mcp-workbench tools` lists all"
        )
    return "\n".join([head, *lines, "", tail])


def _fitting(snapshot: Snapshot, room: int, names_limit: int) -> Iterator[str]:
    """The lines of as many toolboxes as there is room for."""
    for box in snapshot.toolboxes.values():
        line = _line(box, searched=snapshot.tool_mode == "proxy")
        if names_limit and not _names_all(line, box):
            line += f"\n  servers: {name_list(box.servers, names_limit)}"
        room -= len(line) + 1
        if room < 0:
            return
        yield line


def _head(snapshot: Snapshot, *, modern: bool) -> str:
    how = _PROXY_HOW
    if snapshot.naming == "bare":
        how = "Their tools are listed under their own names."
    elif snapshot.tool_mode == "dynamic":
        how = _ALL_SHOWN_HOW if modern else _DYNAMIC_HOW
    demo = (
        ""
        if snapshot.origin
        else " This is the built-in demo, because no configuration file was found: for servers of "
        "their own, the user runs `mcp-workbench import` or `mcp-workbench add`."
    )
    return f"MCP Workbench gives access to many MCP servers, grouped in toolboxes. {how}{demo}\n\nToolboxes:"


def _names_all(line: str, box: ToolboxSpec) -> bool:
    """Does the line name every server of the toolbox already?"""
    words = line.translate(dict.fromkeys(map(ord, ",;:.()"), " ")).split()
    return set(box.servers) <= set(words)


def _line(box: ToolboxSpec, *, searched: bool) -> str:
    count = len(box.servers)
    servers = "1 server" if count == 1 else f"{count} servers"
    if searched and box.discover == "lazy":
        servers += "; can be searched once it has been opened"
    description = " ".join(box.description.split())
    if len(description) > DESCRIPTION_LIMIT:
        description = description[: DESCRIPTION_LIMIT - 1] + "…"
    return f"- {box.name} ({servers})" + (f": {description}" if description else "")


def _example(snapshot: Snapshot, example: ExampleCall) -> str:
    tool = example.tool
    if snapshot.naming == "bare":
        call: dict[str, Any] = {"name": tool.tool}
    elif snapshot.tool_mode == "dynamic":
        call = {"name": generate_tool_name(tool.toolbox, tool.server, tool.tool)}
    else:
        call = {"tool": {"toolbox": tool.toolbox, "server": tool.server, "tool": tool.tool}}
    call["arguments"] = example.arguments
    shown = msgspec.json.format(msgspec.json.encode(call), indent=2).decode()
    return f"Example tool invocation:\n{shown}"


def _some_call(snapshot: Snapshot) -> ExampleCall:
    """A call whose toolbox and server exist, unless their names are too long for an example."""
    tool, arguments = ("read_file", {"path": "/path/to/file"})
    if not snapshot.origin:
        tool, arguments = ("add", {"a": 2, "b": 3})
    for box in snapshot.toolboxes.values():
        for server in box.servers:
            if len(box.name) + len(server) <= LONGEST_NAME:
                return ExampleCall(ToolIdentifier(box.name, server, tool), arguments)
    return ExampleCall(ToolIdentifier("dev", "filesystem", "read_file"), arguments)


def name_list(names: Iterable[str], limit: int = NAMES_LIMIT) -> str:
    """Names joined by commas, as many as fit."""
    joined = ""
    for name in names:
        if len(joined) + len(name) + 2 > limit:
            return f"{joined}, …" if joined else "…"
        joined = f"{joined}, {name}" if joined else name
    return joined


# Short results and errors


def text_result(text: str) -> bytes:
    return msgspec.json.encode({"content": [{"type": "text", "text": text}]})


def error_result(error: WorkbenchError, *warnings: str) -> bytes:
    """An error as a tool result: the contract's text first, hints in blocks of their own."""
    return _error_result(_error_meta(error), error.message, error.hint, *warnings)


def error_texts(code: str, *texts: str) -> bytes:
    return _error_result({CODE_KEY: code}, *texts)


def failed_call(error: WorkbenchError, text: str) -> bytes:
    """An error as the result of a call; `text` is the wording for the call's mode."""
    return _error_result(_error_meta(error), text, error.hint)


def flat_text(error: WorkbenchError, tool: ToolIdentifier) -> str:
    """The wording for a call by flat name: prefixed with the tool once its server is known."""
    if isinstance(error, CallFailed):  # has the prefix already
        return error.message
    if error.code in ("unknown_toolbox", "unknown_server"):
        return f"Error: {error.message}"
    return f"[{tool}] Error: {error.message}"


def _error_result(meta: dict[str, Any], *texts: str) -> bytes:
    return msgspec.json.encode(
        {
            "content": [{"type": "text", "text": text} for text in texts if text],
            "isError": True,
            "_meta": meta,
        }
    )


REFUSALS = ("denied", "quarantined")  # by the configuration


def refused_request(error: WorkbenchError, text: str) -> bytes:
    """A JSON-RPC error for a request other than a call; its data says when to retry, or that it is refused."""
    told = error.retry_after is not None or error.code in REFUSALS
    data = _error_meta(error) if told else None
    return jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, text, data)


def _error_meta(error: WorkbenchError) -> dict[str, Any]:
    meta: dict[str, Any] = {CODE_KEY: error.code}
    if error.retry_after is not None:
        meta[RETRY_KEY] = max(math.ceil(error.retry_after), 1)
    return meta


class Draining(WorkbenchError):
    """The workbench is shutting down and starts nothing new."""

    code = DRAINING


def draining() -> Draining:
    return Draining(ENDING)


def draining_error() -> tuple[int, str, dict[str, str]]:
    """The same for a request other than a call: code, message and data."""
    return jsonrpc.SERVER_ERROR, ENDING, {CODE_KEY: DRAINING}


# Long results, built in parts: the event loop runs other tasks in between


async def whole_result(rest: bytes, members: Iterable[bytes], *, modern: bool) -> bytes:
    """Return a result of ours. `rest` is an object with its other members, which are never long."""
    head = complete(rest, STAMPS) if modern else rest
    comma = b"" if head == b"{}" else b","
    return await joined((head[:-1], comma, *members, b"}"))


async def joined(parts: Collection[bytes]) -> bytes:
    """Join these parts; long ones in a turn of its own, as to make them and to send them takes time, too."""
    if sum(map(len, parts)) <= LONG:
        return b"".join(parts)
    from asyncio import sleep  # `cost` needs no event loop

    await sleep(0)
    whole = b"".join(parts)
    await sleep(0)
    return whole


async def collect(parts: Iterable[bytes]) -> list[bytes]:
    """Return all parts, which are built one by one, in time slices."""
    time_slice = TimeSlice()
    collected: list[bytes] = []
    for part in parts:
        collected.append(part)
        await time_slice.yield_if_over()
    return collected


async def in_turns(work: Generator[None, None, Answer]) -> Answer:
    """Return what this work returns, which yields often, and let other tasks run meanwhile."""
    time_slice = TimeSlice()
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        await time_slice.yield_if_over()


class TimeSlice:
    """Splits work that has many parts: call `yield_if_over` after each part."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def yield_if_over(self) -> None:
        """Let other tasks run if this one has worked for `SLICE` seconds."""
        if perf_counter() - self._since > SLICE:
            from asyncio import sleep  # `cost` needs no event loop

            await sleep(0)
            self._since = perf_counter()


def quoted(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the inside of the JSON string that is made of these texts."""
    for text in texts:
        start = 0
        while start < len(text):
            is_last = start + PIECE >= len(text)
            piece, read = codecs.utf_8_decode(text[start : start + PIECE], "strict", is_last)
            yield msgspec.json.encode(piece)[1:-1]
            start += read


def comma_separated(parts: Iterable[bytes]) -> Iterator[bytes]:
    comma = False
    for part in parts:
        if comma:
            yield b","
        yield part
        comma = True
