"""Dynamic mode: tools under flat names, as definitions and in answers."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.names import ServerAddress, generate_tool_name
from mcp_workbench.core.reports import OpenedToolbox
from mcp_workbench.era.older import legacy_definition
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.meta_tools import opened_text

encode = msgspec.json.encode


def flat_definition(definition: Definition, owner: ServerAddress) -> bytes:
    """The server's definition under its flat name, with its origin in words and in `_meta`."""
    members = read_members(definition.raw)
    members["name"] = _raw(generate_tool_name(owner.toolbox, owner.server, definition.name))
    members["description"] = _raw(f"[{owner}] {_description(members) or definition.name}")
    members["_meta"] = _raw({**_meta(members), **_origin(definition, owner)})
    return encode(members)


def for_legacy_hosts(opened: OpenedToolbox) -> OpenedToolbox:
    """The same toolbox with definitions of modern servers as legacy hosts can read them."""
    replace = msgspec.structs.replace
    servers = tuple(
        replace(s, tools=tuple(replace(t, raw=legacy_definition(t.raw)) for t in s.tools))
        if s.modern
        else s
        for s in opened.servers
    )
    return replace(opened, servers=servers)


def flat_definitions(opened: OpenedToolbox) -> list[bytes]:
    return [flat_definition(tool, s.address) for s in opened.servers for tool in s.tools]


def opened_flat(opened: OpenedToolbox) -> str:
    """The answer of `open_toolbox` in dynamic mode: names only, the definitions arrive natively."""
    tools = [_short(tool, s.address) for s in opened.servers for tool in s.tools]
    return opened_text(opened, tools)


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


def _meta(members: Members) -> Members:
    try:
        return read_members(members["_meta"])
    except (KeyError, msgspec.ValidationError):
        return {}


def _origin(definition: Definition, owner: ServerAddress) -> Members:
    return {
        "source_server": _raw(owner.server),
        "toolbox_name": _raw(owner.toolbox),
        "original_name": _raw(definition.name),
    }


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(value))
