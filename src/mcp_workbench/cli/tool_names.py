"""Names of tools on the command line: TOOLBOX/SERVER/TOOL, or its last parts where they are unique."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mcp_workbench.core.errors import InvalidCall, NotFound, did_you_mean, empty_component
from mcp_workbench.core.spec import ServerAddress, Snapshot, ToolIdentifier

Lists = Mapping[ServerAddress, Iterable[str]]  # the names of the tools of servers

NAMED = (
    "a tool is named TOOLBOX/SERVER/TOOL, or SERVER/TOOL or TOOL where that is unique; "
    "mcp-workbench tools lists them"
)


def identify(name: str, snapshot: Snapshot) -> ToolIdentifier | None:
    """Returns the tool that is meant; None if that depends on the tools of `needed_lists`.

    Raises InvalidCall for what is no name.
    """
    parts = name.split("/", 2)
    _require_parts(parts)
    if parts[0] in snapshot.toolboxes and len(parts) > 1:
        return _whole(parts)
    servers = needed_lists(name, snapshot)
    if len(servers) == 1 and len(parts) > 1:
        return ToolIdentifier(servers[0].toolbox, servers[0].server, name.partition("/")[2])
    return None


def choose(name: str, snapshot: Snapshot, lists: Lists) -> ToolIdentifier:
    """Returns the only tool of this name in these lists.

    Raises InvalidCall if there are several, NotFound if there is none.
    """
    parts, servers = name.split("/", 2), needed_lists(name, snapshot)
    candidates = [
        candidate
        for address in servers
        for candidate in _readings(name, address)
        if candidate.tool in lists.get(address, ())
    ]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        listed = "\n".join(map(str, candidates))
        hint = "write more of its name, such as " + str(candidates[0])
        raise InvalidCall(f"'{name}' fits {len(candidates)} tools:\n{listed}", hint=hint)
    if len(parts) == 3:
        return _whole(parts)  # its toolbox is not found
    raise _unknown(name, snapshot, servers, lists)


def needed_lists(name: str, snapshot: Snapshot) -> list[ServerAddress]:
    """Returns the servers that this name may refer to."""
    addresses = [s.address for box in snapshot.toolboxes.values() for s in box.servers.values()]
    server, slash, _ = name.partition("/")
    named = [address for address in addresses if slash and address.server == server]
    return named or addresses


def _readings(name: str, address: ServerAddress) -> list[ToolIdentifier]:
    """Returns what the name means at this server; names of tools may have slashes themselves."""
    server, slash, rest = name.partition("/")
    tools = [rest, name] if slash and server == address.server else [name]
    return [ToolIdentifier(address.toolbox, address.server, tool) for tool in tools]


def _require_parts(parts: list[str]) -> None:
    for field, part in zip(("toolbox", "server", "tool"), parts, strict=False):
        if not part:
            raise InvalidCall(empty_component(field), hint=NAMED)


def _whole(parts: list[str]) -> ToolIdentifier:
    if len(parts) < 3:
        raise InvalidCall(empty_component("tool"), hint=NAMED)
    return ToolIdentifier(*parts)


def _unknown(
    name: str, snapshot: Snapshot, servers: list[ServerAddress], lists: Lists
) -> InvalidCall | NotFound:
    if name in snapshot.toolboxes or any(name == address.server for address in servers):
        kind = "toolbox" if name in snapshot.toolboxes else "server"
        return InvalidCall(f"'{name}' is a {kind}, not a tool", hint=NAMED)
    tool = name.rpartition("/")[2]
    known = dict.fromkeys(one for address in servers for one in lists.get(address, ()))
    hint = did_you_mean(tool, known)
    return NotFound("unknown_tool", f"Tool '{name}' not found in any server", hint=hint)
