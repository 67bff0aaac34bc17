"""What a server offers: definitions as received, and the views that the contract makes of them."""

from typing import Any, cast

import msgspec

from mcp_workbench.bounded import has_few_members
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.splice import changed

LONGEST_NAME = 4096  # characters; the protocol asks for 128


class Definition(msgspec.Struct, frozen=True):
    """One tool as its server describes it: the exact JSON, made compact, and its name."""

    name: str
    raw: bytes


class Catalogue(msgspec.Struct, frozen=True):
    """All tools of one server, in the server's own order."""

    tools: dict[str, Definition] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tools)


class ToolInfo(msgspec.Struct, frozen=True):
    """A tool, where it stands, and the server's own definition of it."""

    name: str
    toolbox_name: str
    source_server: str
    description: str
    input_schema: dict[str, Any]
    definition: dict[str, Any]


class Unavailable(msgspec.Struct, frozen=True):
    """A server of a toolbox that could not be reached, and why."""

    server: str
    reason: str


class Stale(msgspec.Struct, frozen=True):
    """A server whose tools are shown as they were some time ago, and why."""

    server: str
    seconds: int  # since it listed them
    reason: str

    def __str__(self) -> str:
        return f"its tools are listed as they were {told_age(self.seconds)}"


def told_age(seconds: float) -> str:
    """`12 s ago`, `5 min ago`, `3 h ago`, `4 days ago`."""
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min ago"
    return (
        f"{seconds / 3600:.0f} h ago" if seconds < 172_800 else f"{seconds / 86_400:.0f} days ago"
    )


class OpenToolboxResult(msgspec.Struct, frozen=True):
    """An opened toolbox. Servers that could not be reached are a normal part of it."""

    toolbox: str
    description: str
    servers_connected: int
    tools: tuple[ToolInfo, ...]
    unavailable: tuple[Unavailable, ...] = ()
    # A configuration file that was written since and can't be used; lists that are out of date.
    warnings: tuple[str, ...] = ()
    stale: tuple[Stale, ...] = ()  # whose tools are those of some time ago


class _ToolPeek(msgspec.Struct):
    name: str
    toolbox_name: msgspec.Raw = msgspec.Raw(b"")
    source_server: msgspec.Raw = msgspec.Raw(b"")


def read_definitions(raws: list[msgspec.Raw]) -> tuple[dict[str, Definition], list[str]]:
    """The tools of one page, and what was wrong with those left out. One odd tool costs no other."""
    tools: dict[str, Definition] = {}
    complaints: list[str] = []
    for raw in raws:
        try:
            name = msgspec.json.decode(raw, type=_ToolPeek).name
        except msgspec.DecodeError as error:
            complaints.append(f"a tool without a usable name was left out ({error})")
            continue
        if not name or name in tools:
            complaints.append(
                f"a second tool named {shown_name(name)!r} was left out"
                if name
                else "a tool with an empty name was left out"
            )
            continue
        if len(name) > LONGEST_NAME or not has_few_members(raw):
            complaints.append(
                f"the tool {shown_name(name)!r} was left out: it is too large to be read"
            )
            continue
        tools[name] = Definition(name, msgspec.json.format(bytes(raw), indent=-1))
    return tools, complaints


def tool_info_json(definition: Definition, owner: ServerAddress) -> bytes:
    """The contract's ToolInfo: the definition as received, plus its owner."""
    peek = msgspec.json.decode(definition.raw, type=_ToolPeek)
    toolbox, server = msgspec.json.encode(owner.toolbox), msgspec.json.encode(owner.server)
    if peek.toolbox_name or peek.source_server:  # the server uses our words: ours win
        return changed(definition.raw, {"toolbox_name": toolbox, "source_server": server})
    head = definition.raw[:-1]
    return b'%b,"toolbox_name":%b,"source_server":%b}' % (head, toolbox, server)


def read_object(raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """Any JSON object as Python values; a number beyond a float's range is infinite, not an error."""
    return msgspec.json.Decoder(dict[str, Any], float_hook=float).decode(raw)


def tool_info(definition: Definition, owner: ServerAddress) -> ToolInfo:
    """The same for Python programs."""
    whole = read_object(definition.raw)
    description = whole.get("description")
    schema: Any = whole.get("inputSchema")
    return ToolInfo(
        name=definition.name,
        toolbox_name=owner.toolbox,
        source_server=owner.server,
        description=description if isinstance(description, str) else "",
        input_schema=cast(dict[str, Any], schema) if isinstance(schema, dict) else {},
        definition=whole,
    )
