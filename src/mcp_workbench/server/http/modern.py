"""Modern hosts over HTTP: each POST is an exchange of its own, whose headers must match its body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core.raw_json import TOO_COMPLEX, Inside
from mcp_workbench.protocol.revisions import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    MODERN,
    UNSUPPORTED_VERSION,
)
from mcp_workbench.server.http.access import CUT_OFF
from mcp_workbench.server.parse import (
    EnvelopeFault,
    Message,
    RequestError,
    UseToolRequest,
    read_meta,
    read_stamp,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.messages import (
    JSON,
    HttpRequest,
    Reply,
    ResponseWriter,
    decode_value,
)
from mcp_workbench.transport.http.sse import COMMENT, event
from mcp_workbench.transport.jsonrpc import Malformed

VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
# The member of `params` that Mcp-Name repeats.
_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
STATUS = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
}

ANNOTATION = "x-mcp-header"
PREFIX = "mcp-param-"
MOST_READ = 512 << 10  # bytes of a tool's definition

_MARK = ANNOTATION.encode()
_DECIMAL = re.compile(r"(-?[0-9]+)(?:\.0+)?")

Path = tuple[str, ...]


class _HeaderParams(msgspec.Struct):
    """The members of `params` that headers repeat."""

    name: msgspec.Raw = jsonrpc.NOTHING
    uri: msgspec.Raw = jsonrpc.NOTHING
    taskId: msgspec.Raw = jsonrpc.NOTHING  # noqa: N815 - the wire's word
    arguments: msgspec.Raw = jsonrpc.NOTHING
    meta: msgspec.Raw = msgspec.field(default=jsonrpc.NOTHING, name="_meta")


_USE_TOOL = msgspec.Raw(jsonrpc.encode("use_tool"))
_read_header_params = msgspec.json.Decoder(_HeaderParams).decode
_read_text = msgspec.json.Decoder(str).decode


def check_modern(
    request: HttpRequest, message: Message, definition: Callable[[str], bytes]
) -> None:
    """Raise a RequestError if `_meta`, the headers or the version are wrong, in this order.

    `definition` returns a tool as it was listed: its arguments may have headers of their own.
    """
    params = _header_params(message)
    try:
        version = read_stamp(read_meta(params.meta))
    except EnvelopeFault as fault:
        raise RequestError(jsonrpc.INVALID_PARAMS, str(fault)) from None
    _check_headers(request, message.method, version, params)
    if version != MODERN:
        data = {"supported": [MODERN], "requested": version}
        raise RequestError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if message.method == "tools/call":
        advertised = definition(_text(params.name) or "")
        if wrong := param_mismatch(request, advertised, params.arguments):
            raise mismatch(f"{wrong} differs from its argument")
    if message.method == "initialize":
        raise RequestError(
            jsonrpc.METHOD_NOT_FOUND, f"Method not found: initialize (gone in {MODERN})"
        )


def _header_params(message: Message) -> _HeaderParams:
    if isinstance(message, UseToolRequest):
        return _HeaderParams(name=_USE_TOOL, meta=message.params.meta)
    params = message.params
    try:
        return (
            _read_header_params(params)
            if params and not jsonrpc.is_null(params)
            else _HeaderParams()
        )
    except msgspec.DecodeError:
        raise RequestError(jsonrpc.INVALID_PARAMS, "params must be an object") from None


def _check_headers(request: HttpRequest, method: str, version: str, params: _HeaderParams) -> None:
    headers = request.headers
    for header in request.doubled:
        if header in (VERSION, METHOD, NAME):
            raise mismatch(f"the header {header.decode()} came twice")
    if headers.get(VERSION, b"") != version.encode():
        raise mismatch("MCP-Protocol-Version differs from the version in _meta")
    if headers.get(METHOD, b"") != method.encode():
        raise mismatch("Mcp-Method is missing or differs from the method")
    member = _NAMED.get(method)
    if member is None:
        return
    raw: msgspec.Raw = getattr(params, member)
    name = headers.get(NAME)
    if (raw or name is not None) and _text(raw) != (None if name is None else decode_value(name)):
        raise mismatch(f"Mcp-Name is missing or differs from params.{member}")


def _text(raw: msgspec.Raw) -> str | None:
    try:
        return _read_text(raw) if raw else None
    except msgspec.DecodeError:
        return None


def mismatch(message: str) -> RequestError:
    return RequestError(HEADER_MISMATCH, f"Header mismatch: {message}")


def status_of(frame: bytes, id: bytes) -> int:
    """The HTTP status of a response: that of an error that the request caused, or 200."""
    if not jsonrpc.is_refusal(frame, id):
        return 200
    try:
        error = jsonrpc.read_error(jsonrpc.decode(frame).error)
    except Malformed:  # a server's error that can be relayed, but is too deep to decode
        return 200
    return STATUS.get(error.code, 200)


# Headers that repeat arguments


class _Tool(msgspec.Struct):
    inputSchema: Any = None  # noqa: N815 - the wire's word


def param_mismatch(request: HttpRequest, definition: bytes, arguments: msgspec.Raw) -> str:
    """The first header that differs from its argument; empty if there is none."""
    if _MARK not in definition:
        return ""
    if len(definition) > MOST_READ:
        return f"Mcp-Param-* (the tool's schema is {TOO_COMPLEX})"
    schema = msgspec.json.decode(definition, type=_Tool).inputSchema
    inside = Inside(arguments)
    for path, header, kind in _annotated(schema, ()):
        key = f"{PREFIX}{header}".lower().encode()
        text = request.headers.get(key)
        value = inside.at(path)
        has_header = value[:1] not in (b"", b"n", b"{", b"[")  # not absent, null, object or list
        if key in request.doubled or (text is not None) != has_header:
            return f"Mcp-Param-{header}"
        if text is not None and not _same(kind, value, decode_value(text)):
            return f"Mcp-Param-{header}"
    return ""


def _annotated(schema: Any, path: Path) -> Iterator[tuple[Path, str, Any]]:
    """The annotated arguments, which are reached through `properties` only."""
    below: list[tuple[Any, Path]] = [(schema, path)]
    while below:
        node, path = below.pop()
        if not isinstance(node, dict):
            continue
        node = cast("dict[str, Any]", node)
        if path and isinstance(header := node.get(ANNOTATION), str):
            yield path, header, node.get("type")
        properties = node.get("properties")
        if isinstance(properties, dict):
            inner = cast("dict[str, Any]", properties)
            below += [(inner[name], (*path, name)) for name in reversed(inner)]


def _same(kind: Any, value: bytes, header: str | None) -> bool:
    if value[:1] == b'"':
        return msgspec.json.decode(value) == header
    text = value.decode()
    if kind == "integer" and header is not None:
        argument, repeated = _DECIMAL.fullmatch(text), _DECIMAL.fullmatch(header)
        if argument and repeated:
            return _whole(argument[1]) == _whole(repeated[1])
    return text == header


def _whole(digits: str) -> str:
    """An integer in one spelling. We compare digits, not numbers: there may be very many."""
    plain = digits.lstrip("-").lstrip("0")
    return f"-{plain}" if plain and digits[0] == "-" else plain


class ModernExchange:
    """One modern request. It is the channel of its session, and writes to the HTTP response.

    The response is plain JSON with the right status unless something was sent before it.
    """

    backlog = 0

    def __init__(self, response: ResponseWriter, id: bytes, since: float) -> None:
        self.since = since
        self._response = response
        self._id = id
        self._close: Callable[[], None] | None = None

    def send(self, frame: bytes, about: bytes = b"") -> None:
        response = self._response
        if not jsonrpc.answers(frame, self._id):
            response.stream()
            response.send(event(frame[:-1]))
            return
        if response.streaming:
            response.send(event(frame[:-1]))
            response.end()
        else:
            response.plain(Reply(status_of(frame, self._id), frame, kind=JSON))
        # Soon, not now: the session is in the middle of its reply.
        asyncio.get_running_loop().call_soon(self.close)

    def on_close(self, act: Callable[[], None], finish: Callable[[], None]) -> None:
        """Call `act` when the reply was sent, or the host has closed the response.

        `finish` asks the session to end: a stream of notifications never would.
        """
        self._close = act
        self.finish = finish
        self._response.on_gone(self.close)

    def close(self) -> None:
        act, self._close = self._close, None
        if act is not None:
            act()

    def commit(self) -> None:
        """The reply takes long: start the stream, so that the host sees that we are alive."""
        self._response.stream()

    def comment(self) -> None:
        if self._response.streaming:
            self._response.send(COMMENT)

    def end(self) -> None:
        """No reply will come."""
        if self._response.streaming:
            self._response.end()
        else:
            self._response.plain(CUT_OFF)
        self.close()
