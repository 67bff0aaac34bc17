"""Parses a host's messages once, strictly; only what does not fit is read again, to say why.

Stdio, HTTP and the daemon share this reader. It performs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.errors import MIGRATION, InvalidCall, shown_name
from mcp_workbench.core.raw_json import Members, TooManyParts, read_members
from mcp_workbench.core.spec import Detail, ToolIdentifier, ToolMode, parse_tool_name
from mcp_workbench.protocol.handshake import (
    CAPABILITIES_KEY,
    MODERN,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
)
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.json_text import SHALLOW, too_deep
from mcp_workbench.transport.jsonrpc import NOTHING, Envelope

T = TypeVar("T")

OPEN_TOOLBOX = "open_toolbox"
USE_TOOL = "use_tool"
SEARCH_TOOLS = "search_tools"
READ_RESULT = "read_result"
RENAMED = {"workbench_open_toolbox": OPEN_TOOLBOX, "workbench_use_tool": USE_TOOL}
LONGEST_HOST_NAME = 100  # characters
NO_ARGUMENTS = msgspec.Raw(b"{}")
_BRACE = ord("{")

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class RequestError(Exception):
    """Refuses a request with this JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = jsonrpc.error_object(code, message, data)


# Messages


class _UseTool(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    tool: msgspec.Raw
    arguments: msgspec.Raw = NO_ARGUMENTS


class _Params(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: Literal["use_tool"]
    arguments: _UseTool
    meta: msgspec.Raw = msgspec.field(default=NOTHING, name="_meta")


class UseToolRequest(msgspec.Struct, gc=False):
    """The most frequent request: a call of `use_tool` with nothing unusual in it."""

    id: msgspec.Raw
    method: Literal["tools/call"]
    params: _Params

    @property
    def tool(self) -> msgspec.Raw:
        """The tool as the host wrote it."""
        return self.params.arguments.tool

    @property
    def arguments(self) -> msgspec.Raw:
        return self.params.arguments.arguments

    def whole(self) -> Envelope:
        """The same request in the general form."""
        wanted = {"name": USE_TOOL, "arguments": self.params.arguments}
        params = {**wanted, "_meta": self.params.meta} if self.params.meta else wanted
        return Envelope(
            id=self.id, method=self.method, params=msgspec.Raw(msgspec.json.encode(params))
        )


Message = UseToolRequest | Envelope

_read_use_tool_request = msgspec.json.Decoder(UseToolRequest).decode


def read(line: bytes) -> Message:
    """Parse one message of a host. Raises Malformed."""
    if not line.isascii():
        line = jsonrpc.checked_text(line)
    try:
        message = _read_use_tool_request(line)
    except (msgspec.DecodeError, RecursionError):
        return jsonrpc.decode(line)
    is_deep = len(line) > SHALLOW and too_deep(line)
    if is_deep or memoryview(message.params.arguments.arguments)[0] != _BRACE:
        return jsonrpc.decode(line)
    return message


def read_body(body: bytes) -> Message:
    """Parse one message sent over HTTP: the body may have line breaks, the parts we relay may not."""
    message = read(body)
    mended = json_text.one_line(body)
    return message if mended is body else read(mended)


# The era of a conversation


class EnvelopeFault(Exception):
    """A modern request lacks required members of its `_meta`."""


def is_stamped(meta: Members) -> bool:
    """Whether the request has the `_meta` of a modern one."""
    return VERSION_KEY in meta


def read_stamp(meta: Members) -> str:
    """The revision of a modern request. Raises EnvelopeFault if `_meta` is incomplete."""
    try:
        version = msgspec.json.decode(meta[VERSION_KEY], type=str)
        msgspec.json.decode(meta[CAPABILITIES_KEY], type=dict[str, msgspec.Raw])
    except KeyError as missing:
        raise EnvelopeFault(f"_meta misses {missing} (every {MODERN} request has it)") from None
    except msgspec.ValidationError as error:
        raise EnvelopeFault(f"_meta has no usable form: {error}") from None
    return version


def offered_revision(members: Members) -> str:
    return string_or_empty(members.get("protocolVersion"))


class _ClientInfo(msgspec.Struct):
    name: str = ""


def client_name(info: msgspec.Raw) -> str:
    """The name in a host's `clientInfo`, cut to a reasonable length."""
    try:
        return msgspec.json.decode(info or b"{}", type=_ClientInfo).name[:LONGEST_HOST_NAME]
    except (msgspec.DecodeError, RecursionError):
        return ""


# Requests that are allowed before the conversation is open: two of them open it.
_BEFORE_OPENING = ("initialize", "server/discover", "ping")


class HostEra:
    """The era of a conversation: fixed by the first request that opens it."""

    def __init__(self) -> None:
        self._revision = ""
        self.legacy = False
        self.modern = False

    @property
    def revision(self) -> str:
        return self._revision

    @revision.setter
    def revision(self, value: str) -> None:
        self._revision = value
        self.modern = value == MODERN
        self.legacy = not self.modern

    def check(self, method: str, members: Members, meta: Members) -> None:
        """Raise a RequestError if the request does not fit the era; a modern one may fix it."""
        if self.legacy and not meta:
            return
        stamped = is_stamped(meta)
        if self.legacy:
            if stamped:
                opened = f"this conversation was opened by initialize ({self._revision})"
                raise RequestError(jsonrpc.INVALID_REQUEST, opened)
        elif stamped or self.modern:
            self._check_modern(method, members, meta)
        elif method not in _BEFORE_OPENING:
            raise RequestError(
                jsonrpc.INVALID_PARAMS,
                f"open the conversation first: initialize, or a request with _meta for {MODERN}",
            )

    def _check_modern(self, method: str, members: Members, meta: Members) -> None:
        if method == "initialize":
            raise _unsupported(offered_revision(members))
        try:
            requested = read_stamp(meta)
        except EnvelopeFault as fault:
            raise RequestError(jsonrpc.INVALID_PARAMS, str(fault)) from None
        if requested != MODERN:
            raise _unsupported(requested)
        if method != "server/discover" and not self.modern:
            self.revision = MODERN


def _unsupported(requested: str) -> RequestError:
    data = {"supported": [MODERN], "requested": requested}
    return RequestError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


_read_text = msgspec.json.Decoder(str).decode


def read_params(params: msgspec.Raw) -> Members:
    if not params or jsonrpc.is_null(params):
        return {}
    try:
        return read_members(params)
    except msgspec.DecodeError:
        raise RequestError(jsonrpc.INVALID_PARAMS, "params must be an object") from None


def read_meta(meta: msgspec.Raw | None) -> Members:
    if not meta or jsonrpc.is_null(meta):
        return {}
    try:
        return read_members(meta)
    except msgspec.DecodeError:
        raise RequestError(jsonrpc.INVALID_PARAMS, "params._meta must be an object") from None


def string_or_empty(raw: msgspec.Raw | None) -> str:
    """The string; empty if it is missing, or something else."""
    try:
        return _read_text(raw or b'""')
    except msgspec.DecodeError:
        return ""


def refuse_cursor(members: Members) -> None:
    """Raise a RequestError if a page of a list is requested: our lists have no pages."""
    cursor = members.get("cursor")
    if cursor is not None and not jsonrpc.is_null(cursor):
        raise RequestError(jsonrpc.INVALID_PARAMS, "Unknown cursor: the list has one page")


def read_name(members: Members) -> str:
    """Take `name` out of `members`."""
    try:
        return _read_text(members.pop("name"))
    except (KeyError, msgspec.DecodeError):
        raise RequestError(jsonrpc.INVALID_PARAMS, "params.name must be a string") from None


def read_uri(members: Members) -> str:
    """The required `uri`."""
    try:
        uri = _read_text(members["uri"])
    except (KeyError, msgspec.DecodeError):
        uri = ""
    if not uri:
        raise RequestError(jsonrpc.INVALID_PARAMS, "params.uri must be a string")
    return uri


def cancelled_id(params: msgspec.Raw) -> bytes:
    """The id in a cancellation; empty if there is none."""
    try:
        return bytes(read_members(params).get("requestId", b""))
    except (msgspec.DecodeError, RecursionError):
        return b""


# What a call of a tool asks for


class OpenToolbox(msgspec.Struct, frozen=True):
    """Open this toolbox. Without a `detail`, the configured one applies."""

    toolbox: str
    detail: Detail | None = None


class OwnTool(msgspec.Struct, frozen=True):
    """Call another of our own tools, which reads its arguments itself."""

    name: str
    arguments: msgspec.Raw
    toolbox: str = ""  # none in particular


class ServerTool(msgspec.Struct, frozen=True):
    """Call this tool of a server. `flat`: by its flat name, which changes the wording of errors."""

    request: CallRequest
    flat: bool = False


class UnknownTool(Exception):
    """No tool of ours has this name."""


ToolRequest = OpenToolbox | OwnTool | ServerTool


def read_tool_request(
    mode: ToolMode, name: str, members: Members, meta: Members, *, modern_host: bool
) -> ToolRequest:
    """What a `tools/call` asks for. Raises InvalidCall, or UnknownTool in proxy mode.

    `members` are those of `params` without name and `_meta`; the call takes ownership of them.
    """
    arguments = members.get("arguments")
    if arguments is None or jsonrpc.is_null(arguments):
        arguments = members["arguments"] = NO_ARGUMENTS
    if name == USE_TOOL:
        tool, members["arguments"] = read_use_tool(arguments)
        return ServerTool(CallRequest(tool, members, meta, modern_host))
    if name == OPEN_TOOLBOX:
        return OpenToolbox(*read_open_toolbox(arguments, native=mode == "dynamic"))
    if name in (SEARCH_TOOLS, READ_RESULT) and mode == "proxy":
        return OwnTool(name, arguments)
    if name in RENAMED:
        raise InvalidCall(
            f"Tool '{name}' has been renamed: call '{RENAMED[name]}'", hint=renamed_hint()
        )
    if mode == "proxy":
        raise UnknownTool(f"Unknown tool: {name}")
    return ServerTool(CallRequest(_flat_identifier(name), members, meta, modern_host), flat=True)


def _flat_identifier(name: str) -> ToolIdentifier:
    tool = parse_tool_name(name)
    if tool is None:
        raise InvalidCall(
            f"Error: Invalid tool name format '{name}'. Expected format: "
            "{toolbox}__{server}__{tool} (note: double underscores between all components)",
            hint=f"The format of tool names changed in 0.5.0. More: {MIGRATION}",
        )
    return tool


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    toolbox: NonEmpty
    server: NonEmpty
    tool: NonEmpty


class _UseToolArguments(msgspec.Struct, forbid_unknown_fields=True):
    tool: _Tool
    arguments: msgspec.Raw = NO_ARGUMENTS


class _NativeOpening(msgspec.Struct):
    toolbox_name: NonEmpty


class _OpenToolbox(_NativeOpening):
    detail: Detail | None = None


_read_tool = msgspec.json.Decoder(_Tool).decode
_read_use_tool = msgspec.json.Decoder(_UseToolArguments).decode
_read_native_opening = msgspec.json.Decoder(_NativeOpening).decode
_read_open_toolbox = msgspec.json.Decoder(_OpenToolbox).decode


def read_tool(raw: bytes) -> ToolIdentifier | None:
    """The tool identifier; None if it does not have the right form."""
    try:
        tool = _read_tool(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return ToolIdentifier(tool.toolbox, tool.server, tool.tool)


def read_use_tool(raw: msgspec.Raw | bytes) -> tuple[ToolIdentifier, msgspec.Raw]:
    """The tool and its arguments. Raises InvalidCall with every problem."""
    try:
        call = read_last(_read_use_tool, raw, "tool")
    except msgspec.ValidationError:
        raise wrong_use_tool(raw) from None
    if memoryview(call.arguments)[0] != _BRACE:
        raise wrong_use_tool(raw)
    tool = call.tool
    return ToolIdentifier(tool.toolbox, tool.server, tool.tool), call.arguments


def read_open_toolbox(
    raw: msgspec.Raw | bytes, *, native: bool = False
) -> tuple[str, Detail | None]:
    """The toolbox and the level of detail. Raises InvalidCall. `native`: there are no levels."""
    try:
        if native:
            return read_last(_read_native_opening, raw).toolbox_name, None
        opening = read_last(_read_open_toolbox, raw)
    except msgspec.ValidationError:
        raise wrong_open_toolbox(raw, detailed=not native) from None
    return opening.toolbox_name, opening.detail


# Why arguments of our own tools do not fit: every problem at once, each with its path

MOST_PROBLEMS = 100  # that are listed; the others are counted
_DETAILS = [msgspec.json.encode(detail) for detail in get_args(Detail)]
_TEXTS = ("query", "toolbox", "server", "handle", "find")
Bounds = tuple[int, int]  # minimum and maximum of an integer; a maximum of 0: none
NEW_FORM = '{"tool": {"toolbox": "…", "server": "…", "tool": "…"}, "arguments": {…}}'
_FIELDS = {"toolbox": "Toolbox", "server": "Server", "tool": "Tool"}
_KINDS = {
    "{": "object",
    "[": "array",
    '"': "string",
    "t": "boolean",
    "f": "boolean",
    "n": "null",
}


def read_last(
    read: Callable[[msgspec.Raw | bytes], T], raw: msgspec.Raw | bytes, inside: str = ""
) -> T:
    """What `read` returns; of a repeated name the last value counts, whatever the others are.

    The codec does the same, but validates every value. `inside` is a member to treat the same way.
    """
    try:
        return read(raw)
    except msgspec.ValidationError:
        members = read_members(raw)
        if inside in members:
            members[inside] = msgspec.Raw(msgspec.json.encode(read_members(members[inside])))
        return read(msgspec.json.encode(members))


def wrong_use_tool(raw: msgspec.Raw | bytes) -> InvalidCall:
    """What is wrong with these arguments of `use_tool`."""
    if _kind(raw) != "object":
        return _invalid([_mistyped("", "object", raw)])
    try:
        given = read_members(raw)
        tool = given.get("tool")
        parts = read_members(tool) if tool is not None and _kind(tool) == "object" else None
    except TooManyParts as error:
        return _invalid([str(error)])
    problems = ["tool: Required"] if tool is None else _wrong_tool(tool, parts)
    arguments = given.get("arguments")
    if arguments is not None and _kind(arguments) != "object":
        problems.append(_mistyped("arguments", "object", arguments))
    problems += [f"tool: {_unknown(key)}" for key in parts or {} if key not in _FIELDS]
    problems += [_unknown(key) for key in given if key not in ("tool", "arguments")]
    return _invalid(problems, _use_tool_hint(given, parts))


def _use_tool_hint(given: Members, parts: Members | None) -> str:
    """The new form, for a call in one of the forms of other versions."""
    tool = given.get("tool")
    if "tool_name" in given or (tool is not None and _kind(tool) == "string"):
        return renamed_hint()
    if parts is not None and "name" in parts and "tool" not in parts:
        return other_version_hint('"name"', f'"tool" in the identifier: {NEW_FORM}')
    return ""


def wrong_open_toolbox(raw: msgspec.Raw | bytes, *, detailed: bool) -> InvalidCall:
    """What is wrong with these arguments of `open_toolbox`; `detailed`: it takes a `detail`."""
    if _kind(raw) != "object":
        return _invalid([_mistyped("", "object", raw)])
    try:
        given = read_members(raw)
    except TooManyParts as error:
        return _invalid([str(error)])
    problems = _wrong_name("toolbox_name", given.get("toolbox_name"), "Toolbox")
    hint = ""
    if "toolbox" in given and "toolbox_name" not in given:
        hint = other_version_hint('"toolbox"', '"toolbox_name": {"toolbox_name": "…"}')
    return _invalid(problems + (_wrong_detail(given) if detailed else []), hint)


def wrong_reading(raw: msgspec.Raw | bytes, needed: str, numbers: dict[str, Bounds]) -> InvalidCall:
    """What is wrong with these arguments of `search_tools` or `read_result`.

    `needed` is the required string; `numbers` are the optional integers, each with its bounds.
    """
    if _kind(raw) != "object":
        return _invalid([_mistyped("", "object", raw)])
    try:
        members = read_members(raw).items()
    except TooManyParts as error:
        return _invalid([str(error)])
    # An optional member that is null counts as absent.
    given = {key: value for key, value in members if key == needed or _kind(value) != "null"}
    problems = _wrong_name(needed, given.get(needed), needed.capitalize())
    for key, value in given.items():
        if key in numbers and _kind(value) != "number":
            problems.append(_mistyped(key, "number", value))
        elif key in numbers and not _fits(value, *numbers[key]):
            least, most = numbers[key]
            bounds = f"from {least} to {most}" if most else f"from {least} up"
            problems.append(f"{key}: must be a whole number {bounds}")
        elif key in _TEXTS and key != needed:
            problems += _wrong_name(key, value, key.capitalize())
    return _invalid(problems + _wrong_detail(given))


def whole_number(value: Any, least: int) -> int | None:
    """The number, if it is an integer and not below the minimum; 5.0 is 5, as in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        return None
    return value


def _fits(value: msgspec.Raw, least: int, most: int) -> bool:
    try:
        number = whole_number(msgspec.json.Decoder(float_hook=float).decode(value), least)
    except msgspec.ValidationError:  # thousands of digits
        return False
    return number is not None and (not most or number <= most)


def _wrong_detail(given: Members) -> list[str]:
    value = given.get("detail")
    if value is None or bytes(value) in _DETAILS:
        return []
    return [f"detail: must be one of {', '.join(get_args(Detail))}"]


def renamed_hint() -> str:
    return f"Since 0.11.0 a tool is named by its parts: {NEW_FORM}. More: {MIGRATION}"


def other_version_hint(theirs: str, ours: str) -> str:
    """The hint for a key of the TypeScript workbench, whose later versions renamed some."""
    return f"{theirs} of the TypeScript workbench (0.12 to 0.14) is {ours}. More: {MIGRATION}"


def _wrong_tool(tool: msgspec.Raw, parts: Members | None) -> list[str]:
    if parts is None:
        return [_mistyped("tool", "object", tool)]
    problems: list[str] = []
    for field, word in _FIELDS.items():
        problems += _wrong_name(f"tool.{field}", parts.get(field), word)
    return problems


def _wrong_name(path: str, value: msgspec.Raw | None, word: str) -> list[str]:
    if value is None:
        return [f"{path}: Required"]
    if _kind(value) != "string":
        return [_mistyped(path, "string", value)]
    return [f"{path}: {word} name cannot be empty"] if bytes(value) == b'""' else []


def _mistyped(path: str, expected: str, value: msgspec.Raw | bytes) -> str:
    problem = f"Expected {expected}, received {_kind(value)}"
    return f"{path}: {problem}" if path else problem


def _kind(value: msgspec.Raw | bytes) -> str:
    """The type of a JSON value, by its first character: this never fails."""
    return _KINDS.get(chr(memoryview(value)[0]), "number")


def _unknown(key: str) -> str:
    return f'Unrecognized key: "{shown_name(key)}"'


def _invalid(problems: list[str], hint: str = "") -> InvalidCall:
    more = len(problems) - MOST_PROBLEMS
    shown = [*problems[:MOST_PROBLEMS], f"and {more} more"] if more > 0 else problems
    return InvalidCall(f"Invalid parameters: {'; '.join(shown)}", hint=hint)
