"""Our own tools: their definitions, and the answer of `open_toolbox`."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from mcp_workbench.core.catalogue import Unavailable, tool_info_json
from mcp_workbench.core.reports import OpenedToolbox
from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.surface.long_answers import listed
from mcp_workbench.surface.parse import OPEN_TOOLBOX, READ_RESULT, SEARCH_TOOLS, USE_TOOL
from mcp_workbench.surface.texts import name_list

_NAMES_LIMIT = 400  # characters of toolbox names in a description
_NAME: dict[str, Any] = {"type": "string", "minLength": 1}
_DETAIL: dict[str, Any] = {"enum": list(get_args(Detail))}
MOST_HITS = 20
# Some hosts hide tools until they are searched for, and cut long results: not these.
_HINTS = {"anthropic/alwaysLoad": True, "anthropic/maxResultSizeChars": 500_000}

_OPENING = (
    "List the tools of a toolbox, with their schemas, or shorter: "
    'detail "signature" is a line per tool.'
)
_NATIVE_OPENING = (
    "Open a toolbox: from then on its tools are listed, and called by the names that are given here, "
    "{toolbox}__{server}__{tool}."
)
_USE = (
    "Call a tool of a toolbox. open_toolbox gives toolbox_name, source_server and name "
    "(here: toolbox, server, tool) and the schema of its arguments."
)
_NATIVE_USE = (
    "Call a tool of an opened toolbox that is not listed by its own name. The parts of that name, "
    "{toolbox}__{server}__{tool}, are given one by one."
)


def own_definitions(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The menu of proxy mode. It changes with the configuration alone, never with a search."""
    own = [open_toolbox_definition(snapshot), use_tool_definition(), search_tools_definition()]
    return [*own, read_result_definition()] if has_budgets(snapshot) else own


def has_budgets(snapshot: Snapshot) -> bool:
    """Is there a server whose results may be cut?"""
    return snapshot.tool_mode == "proxy" and any(
        box.budget(server) for box in snapshot.toolboxes.values() for server in box.servers.values()
    )


def open_toolbox_definition(snapshot: Snapshot) -> dict[str, Any]:
    native = snapshot.tool_mode == "dynamic"  # there, definitions arrive as tools
    what = _NATIVE_OPENING if native else _OPENING
    names = name_list(snapshot.toolboxes, _NAMES_LIMIT)
    return {
        "name": OPEN_TOOLBOX,
        "title": "Open a toolbox",
        "description": f"{what} Toolboxes: {names}",
        "inputSchema": {
            "type": "object",
            "properties": {"toolbox_name": _NAME, **({} if native else {"detail": _DETAIL})},
            "required": ["toolbox_name"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "_meta": _HINTS,
    }


def use_tool_definition(*, native: bool = False) -> dict[str, Any]:
    """`native`: for hosts that are shown every tool by its flat name, but may not look again."""
    return {
        "name": USE_TOOL,
        "title": "Use a tool",
        "description": _NATIVE_USE if native else _USE,
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": {
                    "type": "object",
                    "properties": {"toolbox": _NAME, "server": _NAME, "tool": _NAME},
                    "required": ["toolbox", "server", "tool"],
                    "additionalProperties": False,
                },
                "arguments": {"type": "object"},
            },
            "required": ["tool"],
            "additionalProperties": False,
        },
        "_meta": _HINTS,
    }


def search_tools_definition() -> dict[str, Any]:
    return {
        "name": SEARCH_TOOLS,
        "title": "Search tools",
        "description": "Find tools in all toolboxes by what they do: signatures, best first, to call "
        'with use_tool at once. To see tools whole, query "toolbox/server/tool" (one or several) with '
        'detail "full" or "schema".',
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": _NAME,
                "toolbox": _NAME,
                "server": _NAME,
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "default": 5},
                "detail": {**_DETAIL, "default": "signature"},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "_meta": _HINTS,
    }


def read_result_definition() -> dict[str, Any]:
    return {
        "name": READ_RESULT,
        "title": "Read a long result",
        "description": "Read on in a result of which use_tool gave the beginning and a handle: from "
        "an offset in characters, or around a text to find.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "handle": _NAME,
                "offset": {"type": "integer", "minimum": 0, "default": 0},
                "length": {"type": "integer", "minimum": 1},
                "find": _NAME,
            },
            "required": ["handle"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "_meta": _HINTS,
    }


def opened_json(opened: OpenedToolbox) -> str:
    """The answer of `open_toolbox` in proxy mode: every definition as received, plus its owner."""
    return b"".join(opened_parts(opened)).decode()


def opened_parts(opened: OpenedToolbox) -> Iterator[bytes]:
    """The same in parts, each of them made when it is asked for."""
    tools = (tool_info_json(tool, s.address) for s in opened.servers for tool in s.tools)
    return parts_with(opened, tools)


def parts_with(opened: OpenedToolbox, tools: Iterable[bytes]) -> Iterator[bytes]:
    """What is said of an opened toolbox, with these tools."""
    encode = msgspec.json.encode
    yield b'{"toolbox":%b,"description":%b,"servers_connected":%d,"tools":[' % (
        encode(opened.spec.name),
        encode(opened.spec.description),
        opened.connected,
    )
    yield from listed(tools)
    yield b"]"
    if opened.unavailable:
        yield b',"unavailable":%b' % encode(_told(opened.unavailable))
    if opened.warnings:
        yield b',"warnings":%b' % encode(opened.warnings)
    yield b"}"


def _told(unavailable: tuple[Unavailable, ...]) -> list[dict[str, str]]:
    return [{"server": u.server, "reason": u.reason} for u in unavailable]
