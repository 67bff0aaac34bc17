"""What a server offers: its tools as received, the reports and results made of them, their cost."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

import msgspec

from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.raw_json import LONGEST_ENTRY, changed, has_few_members, read_any
from mcp_workbench.core.spec import ServerAddress, ServerSpec, ToolboxSpec

LONGEST_NAME = 4096  # characters; the protocol asks for 128
NAMED = 5  # tools that a sentence names; the others are counted


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

    def differs(self, other: "Catalogue") -> bool:
        """Has the other one other tools? Neither their order counts nor that of their members."""
        old, new = self.tools, other.tools
        return old.keys() != new.keys() or any(_differ(old[name], new[name]) for name in new)


class ToolInfo(msgspec.Struct, frozen=True):
    """A tool, its place in the configuration, and its server's definition of it."""

    name: str
    toolbox_name: str
    source_server: str
    description: str
    input_schema: dict[str, Any]
    definition: dict[str, Any]


MOST_COMPACTED = 1 << 20  # bytes of a definition that is kept without spaces
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class _ToolPeek(msgspec.Struct, frozen=True):
    name: str
    toolbox_name: msgspec.Raw = msgspec.Raw(b"")
    source_server: msgspec.Raw = msgspec.Raw(b"")


def read_definitions(raws: list[msgspec.Raw]) -> tuple[dict[str, Definition], list[str]]:
    """Returns the tools of one page, and why others were left out. An unusable tool affects no other."""
    tools: dict[str, Definition] = {}
    complaints: list[str] = []
    for raw in raws:
        if len(raw) > LONGEST_ENTRY:
            complaints.append(
                f"a tool was left out: its definition is longer than {LONGEST_ENTRY >> 20} MiB"
            )
            continue
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
        tools[name] = Definition(name, _compact(bytes(raw)))
    return tools, complaints


def _compact(raw: bytes) -> bytes:
    """The same without spaces. A very long one is only put on one line, which takes a fraction of the time."""
    if len(raw) <= MOST_COMPACTED:
        return msgspec.json.format(raw, indent=-1)
    if raw.find(b"\n") >= 0 or raw.find(b"\r") >= 0:  # between tokens: no string has one
        return raw.translate(_LINE_BREAKS)
    return raw


def tool_info_json(definition: Definition, owner: ServerAddress) -> bytes:
    """Returns the contract's ToolInfo as JSON: the definition as received, plus its owner."""
    peek = msgspec.json.decode(definition.raw, type=_ToolPeek)
    toolbox, server = msgspec.json.encode(owner.toolbox), msgspec.json.encode(owner.server)
    if peek.toolbox_name or peek.source_server:  # the server uses our keys: ours win
        return changed(definition.raw, {"toolbox_name": toolbox, "source_server": server})
    head = definition.raw[:-1]
    return b'%b,"toolbox_name":%b,"source_server":%b}' % (head, toolbox, server)


def read_object(raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """Decodes any JSON object; a number beyond a float's range is infinite, not an error."""
    return msgspec.json.Decoder(dict[str, Any], float_hook=float).decode(raw)


def tool_info(definition: Definition, owner: ServerAddress) -> ToolInfo:
    """Returns the contract's ToolInfo as a value."""
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


# Opened toolboxes


class Unavailable(msgspec.Struct, frozen=True):
    """A server of a toolbox that could not be reached, and why."""

    server: str
    reason: str


class Stale(msgspec.Struct, frozen=True):
    """A server whose tools are shown from an earlier listing, and why."""

    server: str
    seconds: int  # since it listed them
    reason: str

    def __str__(self) -> str:
        return f"its tools are listed as they were {age_text(self.seconds)}"


def age_text(seconds: float) -> str:
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
    # A changed configuration file that can't be used; odd entries; lists that are out of date.
    warnings: tuple[str, ...] = ()
    stale: tuple[Stale, ...] = ()  # servers shown from an earlier listing


class OpenedServer(msgspec.Struct, frozen=True):
    """A server of an opened toolbox with the tools that its filter shows."""

    address: ServerAddress
    tools: tuple[Definition, ...]
    modern: bool = False
    connected: bool = True
    stale: Stale | None = None  # its tools are from an earlier listing
    idle_filters: tuple[str, ...] = ()  # patterns that match none of its tools

    def for_model(self) -> "OpenedServer":
        """Returns the server without the tools that are for its app alone."""
        tools = tuple(tool for tool in self.tools if is_for_model(tool.raw))
        return msgspec.structs.replace(self, tools=tools)


class OpenedToolbox(msgspec.Struct, frozen=True):
    """A toolbox as far as it could be opened."""

    spec: ToolboxSpec
    servers: tuple[OpenedServer, ...]
    unavailable: tuple[Unavailable, ...]
    warnings: tuple[str, ...] = ()  # about the configuration, and lists that are out of date

    def for_model(self) -> "OpenedToolbox":
        """Returns the toolbox as a model may see it."""
        servers = tuple(server.for_model() for server in self.servers)
        return msgspec.structs.replace(self, servers=servers)

    @property
    def connected(self) -> int:
        return sum(server.connected for server in self.servers)

    @property
    def stale(self) -> tuple[Stale, ...]:
        return tuple(server.stale for server in self.servers if server.stale is not None)


def toolbox_result(opened: OpenedToolbox) -> OpenToolboxResult:
    """Returns the opened toolbox as Python programs see it, with decoded definitions."""
    tools = (tool_info(tool, s.address) for s in opened.servers for tool in s.tools)
    return OpenToolboxResult(
        toolbox=opened.spec.name,
        description=opened.spec.description,
        servers_connected=opened.connected,
        tools=tuple(tools),
        unavailable=opened.unavailable,
        warnings=opened.warnings,
        stale=opened.stale,
    )


# Reports on servers


class ToolChange(msgspec.Struct, frozen=True):
    """How a server's tools differ from an earlier listing."""

    since: float  # time of the earlier listing; seconds of the epoch, like every time here
    at: float  # time of the new one
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = {"added": self.added, "removed": self.removed, "changed": self.changed}
        changes = [f"{word} {_named(names)}" for word, names in kinds.items() if names]
        return "; ".join(changes)


class ServerReport(msgspec.Struct, frozen=True):
    """What a check of one server shows; `reason` is empty if it could be reached."""

    address: ServerAddress
    reason: str = ""
    revision: str = ""
    server_name: str = ""
    server_version: str = ""
    instructions: str = ""
    tools: tuple[ToolInfo, ...] = ()
    hidden: int = 0
    idle_filters: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    seconds: float = 0.0
    skipped: int = 0  # lines on its stdout that were not messages
    last_skipped: str = ""  # the start of the last one
    age: float | None = None  # seconds since the server said so; None: it was asked just now
    change: ToolChange | None = None  # the last one that was noticed
    processes: int = 0  # of this server
    box: str = ""  # its sandbox: none, process or files; empty if no process was started
    # Prompts and templates as received, of servers that have them; a fresh report has asked for them.
    offers: dict[str, tuple[msgspec.Raw, ...]] = {}
    unlike_lock: tuple[
        tuple[str, str, str], ...
    ] = ()  # kind, name and state: see `core.lock_states`


class ServerHealth(msgspec.Struct, frozen=True):
    """The state of a server, known without asking it."""

    address: ServerAddress
    # Not started, starting, ready, ready but silent of late, failed, failed so often that it is
    # retried only now and then.
    state: Literal["idle", "starting", "ready", "degraded", "failed", "broken"]
    reason: str = ""
    failures: int = 0  # in a row
    next_try: float = 0.0  # seconds until it may be started again
    calls_in_flight: int = 0
    skipped: int = 0  # lines on its stdout that were not messages
    unasked: int = 0  # responses without a pending request: late, duplicate, or of an unknown id
    processes: int = 0  # one, or one per host with `scope: session`
    box: str = ""  # the sandbox of its last process: none, process or files


def _named(names: tuple[str, ...]) -> str:
    # A name is text of the server: it must not be able to forge lines in a log.
    shown = [name if name.isprintable() else ascii(name) for name in names[:NAMED]]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    return ", ".join(shown + more)


# The last known state of a server that is not connected


class KnownCatalogue(msgspec.Struct, frozen=True):
    """What a server offered when it was last connected. Calls ask the server itself instead."""

    catalogue: Catalogue
    modern: bool
    revision: str = ""
    server_name: str = ""
    server_version: str = ""
    instructions: str = ""
    capabilities: dict[str, bool] = {}  # by the names of the protocol
    seconds: float = 0.0  # it took to start
    at: float = 0.0  # time of the listing
    change: ToolChange | None = None  # the last one that was noticed
    # What its host could be asked for, as servers are told; some then offer more tools.
    host_capabilities: tuple[str, ...] = ()
    # Prompts, resources and templates as received; kinds that were never listed are absent.
    offers: dict[str, tuple[bytes, ...]] = {}
    extensions: dict[str, msgspec.Raw] = {}  # that it declared

    def age(self, now: float) -> float:
        """Returns seconds since the listing, 0 if the clock was set back."""
        return max(now - self.at, 0.0)

    def opened(self, spec: ServerSpec, now: float, why: str) -> OpenedServer:
        """Returns the server as its toolbox shows it while it is not connected; `why` marks it stale."""
        stale = Stale(spec.address.server, round(self.age(now)), why) if why else None
        return OpenedServer(
            spec.address,
            tuple(self._visible(spec)),
            self.modern,
            connected=False,
            stale=stale,
            idle_filters=tuple(spec.tools.idle(self.catalogue.names)),
        )

    def report(self, spec: ServerSpec, now: float) -> ServerReport:
        """Returns the report on the server while it is not connected."""
        tools = tuple(tool_info(tool, spec.address) for tool in self._visible(spec))
        return ServerReport(
            spec.address,
            revision=self.revision,
            server_name=self.server_name,
            server_version=self.server_version,
            instructions=self.instructions,
            tools=tools,
            hidden=len(self.catalogue.tools) - len(tools),
            idle_filters=tuple(spec.tools.idle(self.catalogue.names)),
            seconds=self.seconds,
            age=self.age(now),
            change=self.change,
            offers={kind: tuple(map(msgspec.Raw, raws)) for kind, raws in self.offers.items()},
        )

    def _visible(self, spec: ServerSpec) -> Iterator[Definition]:
        return (tool for name, tool in self.catalogue.tools.items() if spec.tools.shows(name))


def tool_change(before: KnownCatalogue, after: KnownCatalogue) -> ToolChange | None:
    """Returns how the tools differ, or None. Neither their order counts nor that of their members.

    A server that offers more to a host that can be asked for more has not changed.
    """
    old, new = before.catalogue.tools, after.catalogue.tools
    asked_before, asked_after = set(before.host_capabilities), set(after.host_capabilities)
    added = tuple(name for name in new if name not in old) if asked_after <= asked_before else ()
    removed = tuple(name for name in old if name not in new) if asked_before <= asked_after else ()
    changed = tuple(name for name in new if name in old and _differ(old[name], new[name]))
    if not (added or removed or changed):
        return None
    return ToolChange(before.at, after.at, added, removed, changed)


def _differ(old: Definition, new: Definition) -> bool:
    """Do they differ in more than the order of members, in which a server's eras may differ?"""
    return old.raw != new.raw and _sorted(old.raw) != _sorted(new.raw)


def _sorted(raw: bytes) -> bytes:
    """The same JSON with all members in order; JSON that can't be read stays as it is."""
    try:
        return msgspec.json.encode(read_any(raw), order="deterministic")
    except (msgspec.DecodeError, RecursionError):
        return raw


# What a definition costs the model that reads it


_LISTED = ("name", "description", "inputSchema")


def listed_tokens(definition: Mapping[str, Any]) -> int:
    """Returns the tokens of a tool that is listed directly: name, description and schema reach a model."""
    read = {key: definition[key] for key in _LISTED if key in definition}
    return estimate_tokens(msgspec.json.encode(read).decode())


MOST_WEIGHED = 256 << 10  # bytes of a definition that is read to count its tokens
_BYTES_PER_TOKEN = 4  # of a longer one


def definition_tokens(raw: bytes) -> int:
    """The same of a definition as received; of a very long one by its length, unread."""
    if len(raw) > MOST_WEIGHED:
        return len(raw) // _BYTES_PER_TOKEN
    return listed_tokens(read_object(raw))


# A word with the underscore before it, up to three digits, one character of another script, a run of
# punctuation, a run of line breaks. Spaces belong to what follows them.
_PIECE = r"_?[A-Za-z]+|\d{1,3}|[^\x00-\x7f]|[^\sA-Za-z\d\x80-\U0010ffff]+|\n+"
_LONG_WORD = 9  # letters; longer words are two or more tokens
_RUN = 3  # characters of punctuation in one token, as `":{` or `"},`
_FOREIGN = 0.65  # tokens per character beyond ASCII


def estimate_tokens(text: str) -> int:
    """Returns an estimate of the tokens in a text, without any vocabulary.

    Error against o200k, on the 527 tool definitions of LiveMCPBench: 2 % in all, 3 % for the median tool
    (characters by four: 7 % and 12 %, and 24 % for plain descriptions).
    """
    return round(sum(map(_cost, re.findall(_PIECE, text))))


def _cost(piece: str) -> float:
    first = piece[0]
    if not first.isascii():
        return _FOREIGN
    if first.isalpha() or (first == "_" and piece[-1].isalpha()):
        return 1 + (len(piece) - 1) // _LONG_WORD
    if first.isdigit() or first == "\n":
        return 1
    return max(1, round(len(piece) / _RUN))
