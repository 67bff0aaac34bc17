"""Dynamic mode: tools under flat names, as definitions and in answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.names import ServerAddress, generate_tool_name
from mcp_workbench.core.reports import OpenedServer, OpenedToolbox
from mcp_workbench.core.splice import changed
from mcp_workbench.era.older import legacy_definition
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.meta_tools import parts_with
from mcp_workbench.surface.texts import STALE_KEY

encode = msgspec.json.encode
asdict = msgspec.structs.asdict
replace = msgspec.structs.replace


def flat_definition(definition: Definition, owner: ServerAddress) -> bytes:
    """The server's definition under its flat name, with its origin in words and in `_meta`."""
    members = read_members(definition.raw)
    told = {
        "name": encode(generate_tool_name(owner.toolbox, owner.server, definition.name)),
        "description": encode(f"[{owner}] {_description(members) or definition.name}"),
        "_meta": changed(_meta(members), _origin(definition, owner)),
    }
    return changed(definition.raw, told)


def legacy_tool(tool: Definition, server: OpenedServer) -> Definition:
    """A tool of this server as a legacy host can read it."""
    return replace(tool, raw=legacy_definition(tool.raw)) if server.modern else tool


def flat_definitions(opened: OpenedToolbox) -> list[bytes]:
    return list(flat_parts(opened, modern=True))


def flat_parts(opened: OpenedToolbox, *, modern: bool) -> Iterator[bytes]:
    """The definitions for a host of this era, each of them made when it is asked for."""
    for server in opened.servers:
        for tool in server.tools:
            yield flat_definition(tool if modern else legacy_tool(tool, server), server.address)


def stale_mark(opened: Iterable[OpenedToolbox]) -> bytes:
    """An object that says whose tools are those of some time ago, if any are."""
    stale = [{"toolbox": o.spec.name, **asdict(one)} for o in opened for one in o.stale]
    return b'{"_meta":%b}' % encode({STALE_KEY: stale}) if stale else b"{}"


def opened_flat(opened: OpenedToolbox) -> Iterator[bytes]:
    """The answer of `open_toolbox` in dynamic mode: names only, the definitions arrive natively."""
    tools = (_short(tool, s.address) for s in opened.servers for tool in s.tools)
    return parts_with(opened, tools)


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
