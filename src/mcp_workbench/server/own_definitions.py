"""Definitions of our own tools, which follow the configuration alone."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from mcp_workbench.core.spec import Detail, Snapshot
from mcp_workbench.gateway.script_extra import has_scripts
from mcp_workbench.server import text
from mcp_workbench.server.parse import OPEN_TOOLBOX, READ_RESULT, SEARCH_TOOLS, USE_TOOL
from mcp_workbench.server.text import name_list

encode = msgspec.json.encode
Json = dict[str, Any]

USUAL_HITS = 5  # of a search
MOST_HITS = 20
_STATIC_CACHE = b',"ttlMs":%d,"cacheScope":"%b"}'

_NAME: Json = {"type": "string", "minLength": 1}
_STRING: Json = {"type": "string"}
_PROJECTION: Json = {"lines": _STRING, "context": {"type": "integer"}, "select": _STRING}
_DETAIL: Json = {"enum": list(get_args(Detail))}
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
_PROJECTING = "Part of the result: lines (regex, with context), select (JMESPath)."


def own_definitions(snapshot: Snapshot) -> list[Json]:
    """The tool list of proxy mode. It changes with the configuration alone, never with a search."""
    reads = has_read_result(snapshot)
    own = [open_toolbox_definition(snapshot), use_tool_definition(reads=not reads)]
    own.append(search_tools_definition())
    if reads:
        own.append(read_result_definition())
    if has_scripts(snapshot):
        own.append(_run_script_definition(native=False))
    return own


def native_definitions(snapshot: Snapshot) -> list[Json]:
    """What dynamic mode lists beside the servers' tools, for hosts of both eras."""
    own = [open_toolbox_definition(snapshot)]
    if has_scripts(snapshot):
        own += [_run_script_definition(native=True), read_result_definition()]
    return own


def _run_script_definition(*, native: bool) -> Json:
    from mcp_workbench.server.script_tool import run_script_definition  # mostly off

    return run_script_definition(_HINTS, native=native)


def has_read_result(snapshot: Snapshot) -> bool:
    """Whether hosts have `read_result`: a script's answer may be cut, too."""
    return has_scripts(snapshot) or has_budgets(snapshot)


def has_budgets(snapshot: Snapshot) -> bool:
    """Whether results of any server may be cut."""
    return snapshot.tool_mode == "proxy" and any(
        box.budget(server) for box in snapshot.toolboxes.values() for server in box.servers.values()
    )


def open_toolbox_definition(snapshot: Snapshot) -> Json:
    native = snapshot.tool_mode == "dynamic"  # there, definitions arrive as tools
    return _read_only(
        OPEN_TOOLBOX,
        "Open a toolbox",
        f"{_NATIVE_OPENING if native else _OPENING} Toolboxes: {name_list(snapshot.toolboxes)}",
        {"toolbox_name": _NAME, **({} if native else {"detail": _DETAIL})},
    )


def use_tool_definition(*, native: bool = False, reads: bool = True) -> Json:
    """`native`: for hosts that list tools by flat names, but may not refresh their list.

    `reads`: it reads kept results, too, because there is no `read_result`.
    """
    return {
        "name": USE_TOOL,
        "title": "Use a tool",
        "description": f"{_NATIVE_USE if native else _USE} {_PROJECTING}",
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
                **_PROJECTION,
                **({"handle": _STRING} if reads else {}),
            },
            "required": ["tool"],
            "additionalProperties": False,
        },
        "_meta": _HINTS,
    }


def search_tools_definition() -> Json:
    return _read_only(
        SEARCH_TOOLS,
        "Search tools",
        "Find tools in all toolboxes by what they do: signatures, best first, to call with use_tool "
        'at once. To see tools whole, query "toolbox/server/tool" (one or several) with detail "full" '
        'or "schema".',
        {
            "query": _NAME,
            "toolbox": _NAME,
            "server": _NAME,
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "default": USUAL_HITS},
            "detail": {**_DETAIL, "default": "signature"},
        },
    )


def read_result_definition() -> Json:
    return _read_only(
        READ_RESULT,
        "Read a result",
        "Read a result that has a handle: from an offset in characters, or around a text to find.",
        {
            "handle": _NAME,
            "offset": {"type": "integer", "minimum": 0},
            "length": {"type": "integer", "minimum": 1},
            "find": _NAME,
            **_PROJECTION,
        },
    )


def _read_only(name: str, title: str, description: str, properties: Json) -> Json:
    """The definition of a tool that calls no server. The first property is the required one."""
    required = [next(iter(properties))]
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
        "_meta": _HINTS,
    }


class OwnDefinitions:
    """Our own tools for one configuration, encoded; `of` returns those for the current one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.native = [encode(one) for one in native_definitions(snapshot)]
        self.use_tool = encode(use_tool_definition(native=True))
        self.all = b",".join(map(encode, own_definitions(snapshot)))
        self.cache = _STATIC_CACHE % (text.STATIC_TTL, text.cache_scope(snapshot).encode())
        self._newer: OwnDefinitions | None = None

    def of(self, snapshot: Snapshot) -> OwnDefinitions:
        """All who share these definitions share the new ones as well."""
        if snapshot is self.snapshot:
            return self
        if self._newer is None or self._newer.snapshot is not snapshot:
            self._newer = OwnDefinitions(snapshot)
        return self._newer
