"""Reads what a call of a tool asks for: one of our own tools, or a tool of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import MIGRATION, InvalidCall, shown_name
from mcp_workbench.core.raw_json import LARGE, LONGEST_NAME, Members, read_short
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
    LOWEST,
    kind_of,
    long_member,
    read_given,
    read_last,
    refuse_long,
    renamed_hint,
    wanted_part,
    whole_number,
    wrong_open_toolbox,
    wrong_use_tool,
)
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.core.projection import Projection

_BRACE = ord("{")

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]

OF_SCRIPTS = (RUN_SCRIPT, READ_RESULT)  # dynamic mode has these, too, if scripts are on


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
    projection: Projection | None = None  # what its host wants of the result; all of it without


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
        tool, members["arguments"], wanted = read_use_tool(arguments)
        if wanted.handle:
            return OwnTool(READ_RESULT, msgspec.Raw(msgspec.json.encode(wanted)))
        projection = wanted_part(wanted.select, wanted.lines, wanted.context)
        return ServerTool(CallRequest(tool, members, meta, modern_host), projection=projection)
    if name == OPEN_TOOLBOX:
        return OpenToolbox(*read_open_toolbox(arguments, native=mode == "dynamic"))
    if name in (SEARCH_TOOLS, *OF_SCRIPTS) and mode == "proxy":
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


class _Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    toolbox: NonEmpty
    server: NonEmpty
    tool: NonEmpty


class WantedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a result that a host wants, perhaps of one that is kept."""

    lines: str = ""
    context: int = 0
    select: str = ""
    handle: str = ""


_ALL = WantedPart()


class _UseToolArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: _Tool
    arguments: msgspec.Raw = NO_ARGUMENTS
    lines: str = ""
    context: msgspec.Raw = msgspec.Raw(b"0")
    select: str = ""
    handle: str = ""

    @property
    def wanted(self) -> WantedPart | None:
        """None if it is wrong."""
        context = whole_number(read_short(self.context), LOWEST)
        if context is None:
            return None
        if not (self.lines or self.select or self.handle):
            return _ALL
        return WantedPart(self.lines, context, self.select, self.handle)


class _NativeOpening(msgspec.Struct, frozen=True):
    toolbox_name: NonEmpty


class _OpenToolbox(_NativeOpening, frozen=True):
    detail: Detail | None = None


UseTool = tuple[ToolIdentifier, msgspec.Raw, WantedPart]

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


def read_use_tool(raw: msgspec.Raw | bytes) -> UseTool:
    """The tool, its arguments and what is wanted. Raises InvalidCall with every problem."""
    if len(raw) > LARGE:
        return _read_large_use_tool(raw)
    try:
        call = read_last(_read_use_tool, raw, "tool")
    except msgspec.ValidationError:
        raise wrong_use_tool(raw) from None
    wanted = call.wanted
    if memoryview(call.arguments)[0] != _BRACE or wanted is None:
        raise wrong_use_tool(raw)
    tool = call.tool
    return ToolIdentifier(tool.toolbox, tool.server, tool.tool), call.arguments, wanted


def _read_large_use_tool(raw: msgspec.Raw | bytes) -> UseTool:
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
    tool, _, wanted = read_use_tool(msgspec.json.encode(small))
    return tool, arguments, wanted


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
