"""Reads what a call of a tool asks for: one of our own tools, or a tool of a server."""

from __future__ import annotations

from typing import Annotated

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import MIGRATION, InvalidCall, shown_name
from mcp_workbench.core.raw_json import LARGE, LONGEST_NAME, Members
from mcp_workbench.core.spec import Detail, ToolIdentifier, ToolMode, parse_tool_name
from mcp_workbench.server.parse import (
    NO_ARGUMENTS,
    OPEN_TOOLBOX,
    READ_RESULT,
    RENAMED,
    RUN_SCRIPT,
    SEARCH_TOOLS,
    USE_TOOL,
)
from mcp_workbench.server.wrong_arguments import (
    kind_of,
    long_member,
    read_given,
    read_last,
    refuse_long,
    renamed_hint,
    wrong_open_toolbox,
    wrong_use_tool,
)
from mcp_workbench.transport import jsonrpc

_BRACE = ord("{")

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class OpenToolbox(msgspec.Struct, frozen=True):
    """Open this toolbox. Without a `detail`, the configured one applies."""

    toolbox: str
    detail: Detail | None = None


class OwnTool(msgspec.Struct, frozen=True):
    """Call another of our own tools, which reads its arguments itself."""

    name: str
    arguments: msgspec.Raw
    toolbox: str = ""  # none in particular


class ServerTool(msgspec.Struct, frozen=True):
    """Call this tool of a server. `flat`: by its flat name, which changes the wording of errors."""

    request: CallRequest
    flat: bool = False


class UnknownTool(Exception):
    """No tool of ours has this name."""


ToolRequest = OpenToolbox | OwnTool | ServerTool


def read_tool_request(  # noqa: PLR0913 - what a call consists of
    mode: ToolMode,
    name: str,
    members: Members,
    meta: Members,
    *,
    modern_host: bool,
    of_app: ToolIdentifier | None = None,
) -> ToolRequest:
    """What a `tools/call` asks for. Raises InvalidCall, or UnknownTool in proxy mode.

    `members` are those of `params` without name and `_meta`; the call takes ownership of them. `of_app` is the
    tool with this flat name, if the host shows apps.
    """
    arguments = members.get("arguments")
    if arguments is None or jsonrpc.is_null(arguments):
        arguments = members["arguments"] = NO_ARGUMENTS
    if name == USE_TOOL:
        tool, members["arguments"] = read_use_tool(arguments)
        return ServerTool(CallRequest(tool, members, meta, modern_host))
    if name == OPEN_TOOLBOX:
        return OpenToolbox(*read_open_toolbox(arguments, native=mode == "dynamic"))
    if name in (SEARCH_TOOLS, READ_RESULT, RUN_SCRIPT) and mode == "proxy":
        return OwnTool(name, arguments)
    if name in RENAMED:
        raise InvalidCall(
            f"Tool '{name}' has been renamed: call '{RENAMED[name]}'", hint=renamed_hint()
        )
    if mode == "proxy" and of_app is None:
        raise UnknownTool(f"Unknown tool: {shown_name(name)}")
    tool = of_app or _flat_identifier(name)
    return ServerTool(CallRequest(tool, members, meta, modern_host), flat=True)


def _flat_identifier(name: str) -> ToolIdentifier:
    tool = parse_tool_name(name)
    if tool is None:
        raise InvalidCall(
            f"Error: Invalid tool name format '{shown_name(name)}'. Expected format: "
            "{toolbox}__{server}__{tool} (note: double underscores between all components)",
            hint=f"The format of tool names changed in 0.5.0. More: {MIGRATION}",
        )
    return tool


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    toolbox: NonEmpty
    server: NonEmpty
    tool: NonEmpty


class _UseToolArguments(msgspec.Struct, forbid_unknown_fields=True):
    tool: _Tool
    arguments: msgspec.Raw = NO_ARGUMENTS


class _NativeOpening(msgspec.Struct):
    toolbox_name: NonEmpty


class _OpenToolbox(_NativeOpening):
    detail: Detail | None = None


_read_tool = msgspec.json.Decoder(_Tool).decode
_read_use_tool = msgspec.json.Decoder(_UseToolArguments).decode
_read_native_opening = msgspec.json.Decoder(_NativeOpening).decode
_read_open_toolbox = msgspec.json.Decoder(_OpenToolbox).decode


def read_tool(raw: bytes) -> ToolIdentifier | None:
    """The tool identifier; None if it does not have the right form, or is too long."""
    if len(raw) > LONGEST_NAME:
        return None
    try:
        tool = _read_tool(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return ToolIdentifier(tool.toolbox, tool.server, tool.tool)


def read_use_tool(raw: msgspec.Raw | bytes) -> tuple[ToolIdentifier, msgspec.Raw]:
    """The tool and its arguments. Raises InvalidCall with every problem."""
    if len(raw) > LARGE:
        return _read_large_use_tool(raw)
    try:
        call = read_last(_read_use_tool, raw, "tool")
    except msgspec.ValidationError:
        raise wrong_use_tool(raw) from None
    if memoryview(call.arguments)[0] != _BRACE:
        raise wrong_use_tool(raw)
    tool = call.tool
    return ToolIdentifier(tool.toolbox, tool.server, tool.tool), call.arguments


def _read_large_use_tool(raw: msgspec.Raw | bytes) -> tuple[ToolIdentifier, msgspec.Raw]:
    """The same in one reading, because it takes long: the last of a repeated name counts."""
    if kind_of(raw) != "object":
        raise wrong_use_tool(raw)
    given = read_given(raw)
    small = {**given, "arguments": NO_ARGUMENTS}
    arguments = given.get("arguments", NO_ARGUMENTS)
    if memoryview(arguments)[0] != _BRACE:
        small["arguments"] = msgspec.Raw(b"[]" if kind_of(arguments) == "array" else b"0")
    lengths = {key: len(value) for key, value in small.items()}
    long = [key for key, length in lengths.items() if length > LONGEST_NAME]
    if long or sum(lengths.values()) > LARGE:
        raise long_member(shown_name(long[0]) if long else "all beside arguments")
    return read_use_tool(msgspec.json.encode(small))[0], arguments


def read_open_toolbox(
    raw: msgspec.Raw | bytes, *, native: bool = False
) -> tuple[str, Detail | None]:
    """The toolbox and the level of detail. Raises InvalidCall. `native`: there are no levels."""
    refuse_long(raw)
    try:
        if native:
            return read_last(_read_native_opening, raw).toolbox_name, None
        opening = read_last(_read_open_toolbox, raw)
    except msgspec.ValidationError:
        raise wrong_open_toolbox(raw, detailed=not native) from None
    return opening.toolbox_name, opening.detail
