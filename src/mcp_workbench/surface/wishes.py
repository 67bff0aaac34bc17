"""What a host's `tools/call` asks for: reading only, nothing is performed here."""

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.errors import MIGRATION, InvalidCall
from mcp_workbench.core.names import ToolIdentifier, parse_tool_name
from mcp_workbench.core.spec import Detail, ToolMode
from mcp_workbench.era.translate import Members
from mcp_workbench.surface.arguments import retired_hint
from mcp_workbench.surface.meta_tools import (
    OPEN_TOOLBOX,
    READ_RESULT,
    RETIRED,
    SEARCH_TOOLS,
    USE_TOOL,
    read_open_toolbox,
    read_use_tool,
)
from mcp_workbench.wire.envelope import is_null

NO_ARGUMENTS = msgspec.Raw(b"{}")


class OpenToolbox(msgspec.Struct, frozen=True):
    """Open this toolbox. Without a `detail`, the toolbox says which."""

    toolbox: str
    detail: Detail | None = None


class OwnTool(msgspec.Struct, frozen=True):
    """Call one of our tools that no server knows of; its arguments are read by itself."""

    name: str
    arguments: msgspec.Raw
    toolbox: str = ""  # no one in particular


class UseTool(msgspec.Struct, frozen=True):
    """Call this tool. `flat`: it was named by its flat name, and errors are worded for that."""

    call: ToolCall
    flat: bool = False


class UnknownTool(Exception):
    """A name that is none of ours."""


Wish = OpenToolbox | OwnTool | UseTool


def read_wish(
    mode: ToolMode, name: str, members: Members, meta: Members, *, modern_host: bool
) -> Wish:
    """What is asked for. Raises InvalidCall, or UnknownTool in proxy mode.

    `members` are those of `params` without name and `_meta`; the call takes them over.
    """
    arguments = members.get("arguments")
    if arguments is None or is_null(arguments):
        arguments = members["arguments"] = NO_ARGUMENTS
    if name == USE_TOOL:
        tool, members["arguments"] = read_use_tool(arguments)
        return UseTool(ToolCall(tool, members, meta, modern_host))
    if name == OPEN_TOOLBOX:
        return OpenToolbox(*read_open_toolbox(arguments, native=mode == "dynamic"))
    if name in (SEARCH_TOOLS, READ_RESULT) and mode == "proxy":
        return OwnTool(name, arguments)
    if name in RETIRED:
        raise InvalidCall(
            f"Tool '{name}' has been renamed: call '{RETIRED[name]}'", hint=retired_hint()
        )
    if mode == "proxy":
        raise UnknownTool(f"Unknown tool: {name}")
    return UseTool(ToolCall(_flat_identifier(name), members, meta, modern_host), flat=True)


def _flat_identifier(name: str) -> ToolIdentifier:
    tool = parse_tool_name(name)
    if tool is None:
        raise InvalidCall(
            f"Error: Invalid tool name format '{name}'. Expected format: "
            "{toolbox}__{server}__{tool} (note: double underscores between all components)",
            hint=f"The format of tool names changed in 0.5.0. More: {MIGRATION}",
        )
    return tool
