"""Tools of servers as hosts list them natively: under flat names, or under their own (`naming: bare`).

A host that shows apps gets the tools that are for apps alone, too, and hides them from its model; pages of
apps have addresses that name their server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from mcp_workbench.core.apps import with_page_address
from mcp_workbench.core.catalogue import Definition, OpenedServer, OpenedToolbox
from mcp_workbench.core.raw_json import Members, changed, read_members
from mcp_workbench.core.spec import ServerAddress, generate_tool_name
from mcp_workbench.protocol.translation import legacy_definition
from mcp_workbench.server.parse import string_or_empty

SEARCH_HINT = "anthropic/searchHint"  # words by which Claude Code finds a tool, beside its name

encode = msgspec.json.encode


class ListReader(msgspec.Struct, frozen=True):
    """What a host can read of a list of tools."""

    modern: bool = True  # its era
    apps: bool = False  # it shows them


def flat_definitions(opened: OpenedToolbox) -> list[bytes]:
    """Flat definitions for a modern host without apps."""
    return list(flat_parts(opened, ListReader()))


def flat_parts(opened: OpenedToolbox, reader: ListReader) -> Iterator[bytes]:
    """Flat definitions for a host, each built when it is consumed."""
    for server in opened.servers if reader.apps else opened.for_model().servers:
        for tool in server.tools:
            raw = native_definition(tool, server, reader)
            yield flat_definition(Definition(tool.name, raw), server.address, is_tool=True)


def shared_names(opened: Iterable[OpenedToolbox]) -> frozenset[str]:
    """The names of tools that more than one server has."""
    servers = [server for toolbox in opened for server in toolbox.servers]
    counted = Counter(tool.name for server in servers for tool in server.tools)
    return frozenset(name for name, count in counted.items() if count > 1)


def native_definition(tool: Definition, server: OpenedServer, reader: ListReader) -> bytes:
    """The server's definition, as far as this host can read it."""
    raw = legacy_definition(tool.raw) if server.modern and not reader.modern else tool.raw
    if b"taskSupport" in raw:
        from mcp_workbench.protocol.task_messages import optional_task  # seldom needed

        raw = optional_task(raw)
    return with_page_address(raw, server.address) if reader.apps else raw


def flat_definition(
    definition: Definition, owner: ServerAddress, *, is_tool: bool = False
) -> bytes:
    """The server's definition under its flat name; description and `_meta` name its origin."""
    members = read_members(definition.raw)
    description = string_or_empty(members.get("description"))
    meta = _meta(members)
    added = _origin(definition, owner)
    if is_tool and SEARCH_HINT not in read_members(meta):  # a server's own hint stays
        added[SEARCH_HINT] = encode(f"{owner.toolbox} {owner.server}")
    replaced = {
        "name": encode(generate_tool_name(owner.toolbox, owner.server, definition.name)),
        "description": encode(f"[{owner}] {description or definition.name}"),
        "_meta": changed(meta, added),
    }
    return changed(definition.raw, replaced)


def _meta(members: Members) -> bytes:
    meta = bytes(members.get("_meta", b"{}"))
    return meta if meta.startswith(b"{") else b"{}"


def _origin(definition: Definition, owner: ServerAddress) -> dict[str, bytes]:
    return {
        "source_server": encode(owner.server),
        "toolbox_name": encode(owner.toolbox),
        "original_name": encode(definition.name),
    }
