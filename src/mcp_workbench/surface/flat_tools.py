"""Dynamic mode: tools under flat names, as definitions and in answers."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.names import ServerAddress, generate_tool_name
from mcp_workbench.core.reports import OpenedToolbox
from mcp_workbench.core.splice import changed
from mcp_workbench.era.older import legacy_definition
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.meta_tools import opened_text
from mcp_workbench.surface.texts import STALE_KEY

encode = msgspec.json.encode
asdict = msgspec.structs.asdict


def flat_definition(definition: Definition, owner: ServerAddress) -> bytes:
    """The server's definition under its flat name, with its origin in words and in `_meta`."""
    members = read_members(definition.raw)
    told = {
        "name": encode(generate_tool_name(owner.toolbox, owner.server, definition.name)),
        "description": encode(f"[{owner}] {_description(members) or definition.name}"),
        "_meta": changed(_meta(members), _origin(definition, owner)),
    }
    return changed(definition.raw, told)


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


def stale_mark(opened: Iterable[OpenedToolbox]) -> bytes:
    """The member of a list of tools that says whose are those of some time ago, if any are."""
    stale = [{"toolbox": o.spec.name, **asdict(one)} for o in opened for one in o.stale]
    return b',"_meta":%b' % encode({STALE_KEY: stale}) if stale else b""


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


def _meta(members: Members) -> bytes:
    meta = bytes(members.get("_meta", b"{}"))
    return meta if meta.startswith(b"{") else b"{}"


def _origin(definition: Definition, owner: ServerAddress) -> dict[str, bytes]:
    return {
        "source_server": encode(owner.server),
        "toolbox_name": encode(owner.toolbox),
        "original_name": encode(definition.name),
    }
