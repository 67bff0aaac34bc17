"""Parses a host's messages once, strictly; only what does not fit is read again, to say why.

Stdio, HTTP and the daemon share this reader. It performs nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec

from mcp_workbench.core.errors import shown_name
from mcp_workbench.core.raw_json import (
    LARGE,
    LONGEST_NAME,
    Members,
    Name,
    NameCounter,
    TooLong,
    TooManyParts,
    may_have_long_key,
    may_have_wide_key,
    read_members,
)
from mcp_workbench.core.raw_json import read_name as read_text
from mcp_workbench.protocol.handshake import (
    CAPABILITIES_KEY,
    MODERN,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
)
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.json_text import HUGE, SHALLOW, InSteps, too_deep
from mcp_workbench.transport.jsonrpc import NOTHING, Envelope

OPEN_TOOLBOX = "open_toolbox"
USE_TOOL = "use_tool"
SEARCH_TOOLS = "search_tools"
READ_RESULT = "read_result"
RUN_SCRIPT = "run_script"
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


class _UseTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    tool: msgspec.Raw
    arguments: msgspec.Raw = NO_ARGUMENTS


class _Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    name: Literal["use_tool"]
    arguments: _UseTool
    meta: msgspec.Raw = msgspec.field(default=NOTHING, name="_meta")


class UseToolRequest(msgspec.Struct, frozen=True, gc=False):
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


class _LargeParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    name: msgspec.Raw
    arguments: _UseTool
    meta: msgspec.Raw = msgspec.field(default=NOTHING, name="_meta")


class _LargeRequest(msgspec.Struct, frozen=True, gc=False):
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
    if len(line) > HUGE:  # to try one form first and then another would take too long
        return json_text.finished(read_in_steps(line))
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


class _AnyUseTool(msgspec.Struct, frozen=True, gc=False):
    tool: msgspec.Raw
    arguments: msgspec.Raw = NO_ARGUMENTS


class _AnyParams(msgspec.Struct, frozen=True, gc=False):
    arguments: _AnyUseTool
    meta: msgspec.Raw = msgspec.field(default=NOTHING, name="_meta")


class _AnyRequest(msgspec.Struct, frozen=True, gc=False):
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


def read_in_steps(line: bytes) -> InSteps[Message]:
    """Parse one message above 4 MiB: each pass over it is a step. Raises Malformed."""
    is_too_deep = too_deep(line)  # known by now, unlike that of a copy
    if not line.isascii():
        line = jsonrpc.checked_text(line)
        yield
    if is_too_deep:
        raise jsonrpc.too_deep_error(line)
    return (yield from jsonrpc.decode_in_steps(line, _read_huge))


class HugeMessage(Envelope, gc=False, frozen=True):
    """A message whose `params` was read into its members in the same reading."""

    members: Members | TooManyParts = msgspec.field(default_factory=Members)


class _HugeEnvelope(jsonrpc.Outcome, gc=False, frozen=True):
    id: msgspec.Raw = NOTHING
    method: msgspec.Raw = NOTHING
    params: dict[Name, msgspec.Raw] | None = None


def _read_huge(line: bytes) -> InSteps[Envelope]:
    """Read the envelope and the members of `params` at once. Raises a DecodeError."""
    if may_have_wide_key(line):
        yield
        return jsonrpc.read_large(line)
    too_many: TooManyParts | None = None
    try:
        message = msgspec.json.Decoder(_HugeEnvelope, dec_hook=NameCounter()).decode(line)
    except TooManyParts as error:
        too_many = error.with_traceback(None)  # which would keep the message until it is collected
    except msgspec.ValidationError:  # `params` is no object
        pass
    else:
        method = jsonrpc.read_method(message.method)
        members = {name.text: value for name, value in (message.params or {}).items()}
        return HugeMessage(message.result, message.error, message.id, method, NOTHING, members)
    yield
    whole = jsonrpc.read_large(line)
    if too_many is None:
        return whole
    outcome = (whole.result, whole.error)
    return HugeMessage(*outcome, whole.id, whole.method, whole.params, too_many)


_SPACES = bytes.maketrans(b"\r\n", b"  ")


def read_body(body: bytes) -> Message:
    """Parse one message sent over HTTP: the body may have line breaks, the parts we relay may not."""
    message = read(body)
    if not json_text.has(body, b"\n") and not json_text.has(body, b"\r"):
        return message
    return _in_one_line(message)


def read_body_in_steps(body: bytes) -> InSteps[Message]:
    """The same for a body above 4 MiB: each pass over it is a step."""
    message = yield from read_in_steps(body)
    if not json_text.has(body, b"\n") and not json_text.has(body, b"\r"):
        return message
    yield
    return _in_one_line(message)


def _in_one_line(message: Message) -> Message:
    if isinstance(message, Envelope):
        parts = (message.result, message.error, message.id)
        result, error, id = map(_one_line, parts)
        if isinstance(message, HugeMessage):
            members = message.members
            if isinstance(members, dict):
                members = {name: _one_line(value) for name, value in members.items()}
            return HugeMessage(result, error, id, message.method, NOTHING, members)
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


class _ClientInfo(msgspec.Struct, frozen=True):
    name: msgspec.Raw = NOTHING
    version: msgspec.Raw = NOTHING


def client_name_and_version(info: msgspec.Raw) -> tuple[str, str]:
    """Name and version in a host's `clientInfo`, cut to a reasonable length; empty if missing, or no text."""
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


def read_params(message: Envelope) -> Members:
    """The members of its `params`. Raises a RequestError."""
    params = message.params
    try:
        if isinstance(message, HugeMessage):
            return _known(message)
        return read_members(params) if params and not jsonrpc.is_null(params) else {}
    except TooManyParts as error:
        raise RequestError(jsonrpc.INVALID_PARAMS, f"params is {error}") from None
    except msgspec.DecodeError:
        raise RequestError(jsonrpc.INVALID_PARAMS, "params must be an object") from None


def _known(message: HugeMessage) -> Members:
    if isinstance(message.members, TooManyParts):
        raise message.members
    return dict(message.members)  # the request takes ownership of them


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


def cancelled_id(message: Envelope) -> bytes:
    """The id in a cancellation; empty if there is none."""
    try:
        id = read_params(message).get("requestId", b"")
    except (RequestError, RecursionError):
        return b""
    return bytes(id) if len(id) <= jsonrpc.LONGEST_ID else b""
