"""Parses a host's messages once, strictly; only what does not fit is read again, to say why.

Stdio, HTTP and the daemon share this reader. It performs nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import MIGRATION, InvalidCall, shown_name
from mcp_workbench.core.raw_json import (
    LARGE,
    LONGEST_NAME,
    Members,
    TooLong,
    TooManyParts,
    may_have_long_key,
    read_members,
)
from mcp_workbench.core.raw_json import read_name as read_text
from mcp_workbench.core.spec import Detail, ToolIdentifier, ToolMode, parse_tool_name
from mcp_workbench.protocol.handshake import (
    CAPABILITIES_KEY,
    MODERN,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
)
from mcp_workbench.server.wrong_arguments import (
    kind_of,
    long_member,
    read_given,
    read_last,
    refuse_long,
    renamed_hint,
    wrong_open_toolbox,
    wrong_use_tool,
)
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.json_text import SHALLOW, too_deep
from mcp_workbench.transport.jsonrpc import NOTHING, Envelope

OPEN_TOOLBOX = "open_toolbox"
USE_TOOL = "use_tool"
SEARCH_TOOLS = "search_tools"
READ_RESULT = "read_result"
RENAMED = {"workbench_open_toolbox": OPEN_TOOLBOX, "workbench_use_tool": USE_TOOL}
LONGEST_HOST_NAME = 100  # characters
LONGEST_META = 1 << 20  # bytes of `_meta`
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
        parts = [b'{"name":"use_tool","arguments":{"tool":', self.tool]
        parts += (b',"arguments":', self.arguments, b"}")
        if self.params.meta:
            parts += (b',"_meta":', self.params.meta)
        params = msgspec.Raw(b"".join((*parts, b"}")))
        return Envelope(id=self.id, method=self.method, params=params)


Message = UseToolRequest | Envelope

_read_use_tool_request = msgspec.json.Decoder(UseToolRequest).decode


def read(line: bytes) -> Message:
    """Parse one message of a host. Raises Malformed."""
    if not line.isascii():
        line = jsonrpc.checked_text(line)
    if len(line) > LARGE:
        return _read_large(line)
    try:
        message = _read_use_tool_request(line)
    except (msgspec.DecodeError, RecursionError):
        return jsonrpc.decode(line)
    if len(line) > SHALLOW and too_deep(line):
        raise jsonrpc.too_deep_error(line)
    if memoryview(message.params.arguments.arguments)[0] != _BRACE:
        return jsonrpc.decode(line)
    return message


class _LargeParams(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: msgspec.Raw
    arguments: _UseTool
    meta: msgspec.Raw = msgspec.field(default=NOTHING, name="_meta")


class _LargeRequest(msgspec.Struct, gc=False):
    """A large `UseToolRequest`, in which no text is decoded that may be long: an error would quote it."""

    id: msgspec.Raw
    method: msgspec.Raw
    params: _LargeParams

    @property
    def is_plain(self) -> bool:
        """Whether it is a call of `use_tool` with nothing unusual in it."""
        called = self.params.arguments
        return (
            bytes(memoryview(self.method)[:_LONGEST_WORD]) == b'"tools/call"'
            and bytes(memoryview(self.params.name)[:_LONGEST_WORD]) == b'"use_tool"'
            and memoryview(called.arguments)[0] == _BRACE
        )


_LONGEST_WORD = len(b'"tools/call"') + 1
_read_large_request = msgspec.json.Decoder(_LargeRequest).decode


def _read_large(line: bytes) -> Message:
    """The same for a large message: read once if possible, since each reading takes long."""
    message = None
    if not _may_quote_long_key(line):
        with suppress(msgspec.DecodeError, RecursionError):
            message = _read_large_request(line)
    if too_deep(line):
        raise jsonrpc.too_deep_error(line)
    if message is None or not message.is_plain:
        return jsonrpc.decode(line, is_shallow=True)
    params = _Params("use_tool", message.params.arguments, message.params.meta)
    return UseToolRequest(message.id, "tools/call", params)


class _AnyUseTool(msgspec.Struct, gc=False):
    tool: msgspec.Raw
    arguments: msgspec.Raw = NO_ARGUMENTS


class _AnyParams(msgspec.Struct, gc=False):
    arguments: _AnyUseTool
    meta: msgspec.Raw = msgspec.field(default=NOTHING, name="_meta")


class _AnyRequest(msgspec.Struct, gc=False):
    """The same where an unknown member is no error."""

    id: msgspec.Raw
    params: _AnyParams


_read_any_request = msgspec.json.Decoder(_AnyRequest).decode


def _may_quote_long_key(line: bytes) -> bool:
    """Whether to read it as a `use_tool` request may fail with an error that quotes a long key.

    A key in ASCII takes little memory. Where the parts that stay as received are nearly the whole message,
    nothing else in it is long.
    """
    if (line.isascii() and not json_text.has(line, b"\\")) or not may_have_long_key(line):
        return False
    try:
        message = _read_any_request(line)
    except (msgspec.DecodeError, RecursionError):
        return True
    called, meta = message.params.arguments, message.params.meta
    kept = len(message.id) + len(meta) + len(called.tool) + len(called.arguments)
    return len(line) - kept > LONGEST_NAME


_SPACES = bytes.maketrans(b"\r\n", b"  ")


def read_body(body: bytes) -> Message:
    """Parse one message sent over HTTP: the body may have line breaks, the parts we relay may not."""
    message = read(body)
    if not json_text.has(body, b"\n") and not json_text.has(body, b"\r"):
        return message
    if isinstance(message, Envelope):
        parts = (message.result, message.error, message.id)
        result, error, id = map(_one_line, parts)
        return Envelope(result, error, id, message.method, _one_line(message.params))
    called = message.params.arguments
    arguments = _UseTool(_one_line(called.tool), _one_line(called.arguments))
    params = _Params(message.params.name, arguments, _one_line(message.params.meta))
    return UseToolRequest(_one_line(message.id), message.method, params)


def _one_line(part: msgspec.Raw) -> msgspec.Raw:
    """The same value without line breaks: they stand only between tokens, and would end a frame."""
    return msgspec.Raw(bytes(part).translate(_SPACES)) if part else part


# The era of a conversation


class EnvelopeFault(Exception):
    """A modern request lacks required members of its `_meta`."""


def is_stamped(meta: Members) -> bool:
    """Whether the request has the `_meta` of a modern one."""
    return VERSION_KEY in meta


def read_stamp(meta: Members) -> str:
    """The revision of a modern request. Raises EnvelopeFault if `_meta` is incomplete."""
    try:
        version = read_text(meta[VERSION_KEY])
        msgspec.json.decode(meta[CAPABILITIES_KEY], type=dict[str, msgspec.Raw])
    except KeyError as missing:
        raise EnvelopeFault(f"_meta misses {missing} (every {MODERN} request has it)") from None
    except msgspec.ValidationError as error:
        raise EnvelopeFault(f"_meta has no usable form: {error}") from None
    return version


def offered_revision(members: Members) -> str:
    return string_or_empty(members.get("protocolVersion"))


class _ClientInfo(msgspec.Struct):
    name: msgspec.Raw = NOTHING
    version: msgspec.Raw = NOTHING


def client_name(info: msgspec.Raw) -> str:
    """The name in a host's `clientInfo`, cut to a reasonable length."""
    return client_name_and_version(info)[0]


def client_name_and_version(info: msgspec.Raw) -> tuple[str, str]:
    """The same with its version; each is empty if it is missing, or no text."""
    try:
        client = msgspec.json.decode(info or b"{}", type=_ClientInfo)
    except (msgspec.DecodeError, RecursionError):
        return "", ""
    return _host_text(client.name), _host_text(client.version)


def _host_text(raw: msgspec.Raw) -> str:
    try:
        return read_text(raw)[:LONGEST_HOST_NAME] if raw else ""
    except msgspec.DecodeError:
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
    data = {"supported": [MODERN], "requested": shown_name(requested)}
    return RequestError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def read_params(params: msgspec.Raw) -> Members:
    if not params or jsonrpc.is_null(params):
        return {}
    try:
        return read_members(params)
    except TooManyParts as error:
        raise RequestError(jsonrpc.INVALID_PARAMS, f"params is {error}") from None
    except msgspec.DecodeError:
        raise RequestError(jsonrpc.INVALID_PARAMS, "params must be an object") from None


def read_meta(meta: msgspec.Raw | None) -> Members:
    if not meta or jsonrpc.is_null(meta):
        return {}
    if len(meta) > LONGEST_META:
        too_long = f"params._meta is longer than {LONGEST_META >> 10} KiB"
        raise RequestError(jsonrpc.INVALID_PARAMS, too_long)
    try:
        return read_members(meta)
    except TooManyParts as error:
        raise RequestError(jsonrpc.INVALID_PARAMS, f"params._meta is {error}") from None
    except msgspec.DecodeError:
        raise RequestError(jsonrpc.INVALID_PARAMS, "params._meta must be an object") from None


def string_or_empty(raw: msgspec.Raw | None) -> str:
    """The string; empty if it is missing, too long, or something else."""
    try:
        return read_text(raw or b'""')
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
        return read_text(members.pop("name"))
    except TooLong as error:
        raise RequestError(jsonrpc.INVALID_PARAMS, f"params.name is {error}") from None
    except (KeyError, msgspec.DecodeError):
        raise RequestError(jsonrpc.INVALID_PARAMS, "params.name must be a string") from None


def read_uri(members: Members) -> str:
    """The required `uri`."""
    try:
        uri = read_text(members["uri"])
    except TooLong as error:
        raise RequestError(jsonrpc.INVALID_PARAMS, f"params.uri is {error}") from None
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
        raise UnknownTool(f"Unknown tool: {shown_name(name)}")
    return ServerTool(CallRequest(_flat_identifier(name), members, meta, modern_host), flat=True)


def _flat_identifier(name: str) -> ToolIdentifier:
    tool = parse_tool_name(name)
    if tool is None:
        raise InvalidCall(
            f"Error: Invalid tool name format '{shown_name(name)}'. Expected format: "
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
    """The tool identifier; None if it does not have the right form, or is too long."""
    if len(raw) > LONGEST_NAME:
        return None
    try:
        tool = _read_tool(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return ToolIdentifier(tool.toolbox, tool.server, tool.tool)


def read_use_tool(raw: msgspec.Raw | bytes) -> tuple[ToolIdentifier, msgspec.Raw]:
    """The tool and its arguments. Raises InvalidCall with every problem."""
    if len(raw) > LARGE:
        return _read_large_use_tool(raw)
    try:
        call = read_last(_read_use_tool, raw, "tool")
    except msgspec.ValidationError:
        raise wrong_use_tool(raw) from None
    if memoryview(call.arguments)[0] != _BRACE:
        raise wrong_use_tool(raw)
    tool = call.tool
    return ToolIdentifier(tool.toolbox, tool.server, tool.tool), call.arguments


def _read_large_use_tool(raw: msgspec.Raw | bytes) -> tuple[ToolIdentifier, msgspec.Raw]:
    """The same in one reading, because it takes long: the last of a repeated name counts."""
    if kind_of(raw) != "object":
        raise wrong_use_tool(raw)
    given = read_given(raw)
    small = {**given, "arguments": NO_ARGUMENTS}
    arguments = given.get("arguments", NO_ARGUMENTS)
    if memoryview(arguments)[0] != _BRACE:
        small["arguments"] = msgspec.Raw(b"[]" if kind_of(arguments) == "array" else b"0")
    lengths = {key: len(value) for key, value in small.items()}
    long = [key for key, length in lengths.items() if length > LONGEST_NAME]
    if long or sum(lengths.values()) > LARGE:
        raise long_member(shown_name(long[0]) if long else "all beside arguments")
    return read_use_tool(msgspec.json.encode(small))[0], arguments


def read_open_toolbox(
    raw: msgspec.Raw | bytes, *, native: bool = False
) -> tuple[str, Detail | None]:
    """The toolbox and the level of detail. Raises InvalidCall. `native`: there are no levels."""
    refuse_long(raw)
    try:
        if native:
            return read_last(_read_native_opening, raw).toolbox_name, None
        opening = read_last(_read_open_toolbox, raw)
    except msgspec.ValidationError:
        raise wrong_open_toolbox(raw, detailed=not native) from None
    return opening.toolbox_name, opening.detail
