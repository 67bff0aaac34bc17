"""Tool definitions: our own, those of servers under flat names, the result of `open_toolbox`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from mcp_workbench.core.catalogue import (
    Definition,
    OpenedServer,
    OpenedToolbox,
    Unavailable,
    tool_info_json,
)
from mcp_workbench.core.names import ServerAddress, generate_tool_name
from mcp_workbench.core.raw_json import Members, changed, read_members
from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.protocol.downgrade import legacy_definition
from mcp_workbench.server.long_answers import comma_separated
from mcp_workbench.server.parse import OPEN_TOOLBOX, READ_RESULT, SEARCH_TOOLS, USE_TOOL
from mcp_workbench.server.text import STALE_KEY, name_list

encode = msgspec.json.encode
asdict = msgspec.structs.asdict
replace = msgspec.structs.replace

_NAMES_LIMIT = 400  # characters of toolbox names in a description
_NAME: dict[str, Any] = {"type": "string", "minLength": 1}
_DETAIL: dict[str, Any] = {"enum": list(get_args(Detail))}
MOST_HITS = 20
# Some hosts hide tools until they are searched for, and cut long results: not those of these tools.
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
    """The tool list of proxy mode. It changes with the configuration alone, never with a search."""
    own = [open_toolbox_definition(snapshot), use_tool_definition(), search_tools_definition()]
    return [*own, read_result_definition()] if has_budgets(snapshot) else own


def has_budgets(snapshot: Snapshot) -> bool:
    """Whether results of any server may be cut."""
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
    """`native`: for hosts that list tools by flat names, but may not refresh their list."""
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
    """The result of `open_toolbox` in proxy mode: every definition as received, plus its server."""
    return b"".join(opened_parts(opened)).decode()


def opened_parts(opened: OpenedToolbox) -> Iterator[bytes]:
    """The same in parts, each built when it is consumed."""
    tools = (tool_info_json(tool, s.address) for s in opened.servers for tool in s.tools)
    return toolbox_parts(opened, tools)


def toolbox_parts(opened: OpenedToolbox, tools: Iterable[bytes]) -> Iterator[bytes]:
    """The result of `open_toolbox` with these tools."""
    yield b'{"toolbox":%b,"description":%b,"servers_connected":%d,"tools":[' % (
        encode(opened.spec.name),
        encode(opened.spec.description),
        opened.connected,
    )
    yield from comma_separated(tools)
    yield b"]"
    if opened.unavailable:
        yield b',"unavailable":%b' % encode(_unavailable(opened.unavailable))
    if opened.warnings:
        yield b',"warnings":%b' % encode(opened.warnings)
    yield b"}"


def _unavailable(servers: tuple[Unavailable, ...]) -> list[dict[str, str]]:
    return [{"server": server.server, "reason": server.reason} for server in servers]


# Dynamic mode: tools of servers under flat names


def flat_definition(definition: Definition, owner: ServerAddress) -> bytes:
    """The server's definition under its flat name; description and `_meta` name its origin."""
    members = read_members(definition.raw)
    replaced = {
        "name": encode(generate_tool_name(owner.toolbox, owner.server, definition.name)),
        "description": encode(f"[{owner}] {_description(members) or definition.name}"),
        "_meta": changed(_meta(members), _origin(definition, owner)),
    }
    return changed(definition.raw, replaced)


def legacy_tool(tool: Definition, server: OpenedServer) -> Definition:
    """The definition of this server's tool in the form of the legacy era."""
    return replace(tool, raw=legacy_definition(tool.raw)) if server.modern else tool


def flat_definitions(opened: OpenedToolbox) -> list[bytes]:
    return list(flat_parts(opened, modern=True))


def flat_parts(opened: OpenedToolbox, *, modern: bool) -> Iterator[bytes]:
    """Flat definitions for a host of this era, each built when it is consumed."""
    for server in opened.servers:
        for tool in server.tools:
            yield flat_definition(tool if modern else legacy_tool(tool, server), server.address)


def stale_servers_meta(opened: Iterable[OpenedToolbox]) -> bytes:
    """An object whose `_meta` names the servers with cached tools, if there are any."""
    stale = [
        {"toolbox": toolbox.spec.name, **asdict(server)}
        for toolbox in opened
        for server in toolbox.stale
    ]
    return b'{"_meta":%b}' % encode({STALE_KEY: stale}) if stale else b"{}"


def opened_flat_parts(opened: OpenedToolbox) -> Iterator[bytes]:
    """The result of `open_toolbox` in dynamic mode: names only; definitions come with `tools/list`."""
    tools = (_short(tool, s.address) for s in opened.servers for tool in s.tools)
    return toolbox_parts(opened, tools)


def _short(definition: Definition, owner: ServerAddress) -> bytes:
    return encode(
        {
            "name": generate_tool_name(owner.toolbox, owner.server, definition.name),
            "toolbox_name": owner.toolbox,
            "source_server": owner.server,
        }
    )


def _description(members: Members) -> str:
    try:
        return msgspec.json.decode(members.get("description", b'""'), type=str)
    except msgspec.ValidationError:
        return ""


def _meta(members: Members) -> bytes:
    meta = bytes(members.get("_meta", b"{}"))
    return meta if meta.startswith(b"{") else b"{}"


def _origin(definition: Definition, owner: ServerAddress) -> dict[str, bytes]:
    return {
        "source_server": encode(owner.server),
        "toolbox_name": encode(owner.toolbox),
        "original_name": encode(definition.name),
    }
