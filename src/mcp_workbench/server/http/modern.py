"""Modern hosts over HTTP: each POST is an exchange of its own, whose headers must match its body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mcp_workbench.core.raw_json import TOO_COMPLEX, Inside
from mcp_workbench.core.schema_paths import SchemaPlace, path_of
from mcp_workbench.protocol.handshake import (
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    MODERN,
    NAMED_BY,
    UNSUPPORTED_VERSION,
)
from mcp_workbench.server import parse
from mcp_workbench.server.elicitation import InputRequests
from mcp_workbench.server.http.access import CUT_OFF, refused
from mcp_workbench.server.http.streams import SILENCE
from mcp_workbench.server.parse import (
    EnvelopeFault,
    HugeMessage,
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

if TYPE_CHECKING:
    from mcp_workbench.server.http.sessions import Admitted, Endpoint
    from mcp_workbench.server.suspended_calls import Expiry, RequestStates

    ExchangeKey = tuple[Endpoint, bytes]  # and `_meta`

FREE = 64  # sessions that are kept for requests to come
PRINCIPALS = 1024  # whose open questions are kept in mind, unless a call waits for the answer
LONGEST_META = 4096  # bytes that are compared and kept

VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
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
MOST_HEADERS = 100  # of one tool
_TOO_COMPLEX = f"Mcp-Param-* (the tool's schema is {TOO_COMPLEX})"

_MARK = ANNOTATION.encode()
_DECIMAL = re.compile(r"(-?[0-9]+)(?:\.0+)?")

Path = tuple[str, ...]


class _HeaderParams(msgspec.Struct, frozen=True):
    """The members of `params` that headers repeat."""

    name: msgspec.Raw = jsonrpc.NOTHING
    uri: msgspec.Raw = jsonrpc.NOTHING
    taskId: msgspec.Raw = jsonrpc.NOTHING  # noqa: N815 - the wire's word
    arguments: msgspec.Raw = jsonrpc.NOTHING
    meta: msgspec.Raw = msgspec.field(default=jsonrpc.NOTHING, name="_meta")


_HEADER_PARAMS = {field.name: field.encode_name for field in msgspec.structs.fields(_HeaderParams)}
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
    if isinstance(message, HugeMessage):
        known = parse.read_params(message)
        given = {field: known[name] for field, name in _HEADER_PARAMS.items() if name in known}
        return _HeaderParams(**given)
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
    member = NAMED_BY.get(method)
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


class _Tool(msgspec.Struct, frozen=True):
    inputSchema: Any = None  # noqa: N815 - the wire's word


# Python reads the numbers: see `read_any`.
_read_tool = msgspec.json.Decoder(_Tool, float_hook=float).decode


def param_mismatch(request: HttpRequest, definition: bytes, arguments: msgspec.Raw) -> str:
    """The first header that differs from its argument; empty if there is none."""
    if _MARK not in definition:
        return ""
    if len(definition) > MOST_READ:
        return _TOO_COMPLEX
    schema = _read_tool(definition).inputSchema
    inside = Inside(arguments)
    for count, (path, header, kind) in enumerate(_annotated(schema)):
        if count == MOST_HEADERS:
            return _TOO_COMPLEX
        key = f"{PREFIX}{header}".lower().encode()
        text = request.headers.get(key)
        value = inside.at(path)
        has_header = value[:1] not in (b"", b"n", b"{", b"[")  # not absent, null, object or list
        if key in request.doubled or (text is not None) != has_header:
            return f"Mcp-Param-{header}"
        if text is not None and not _same(kind, value, decode_value(text)):
            return f"Mcp-Param-{header}"
    return ""


def _annotated(schema: Any) -> Iterator[tuple[Path, str, Any]]:
    """The annotated arguments, which are reached through `properties` only."""
    below: list[tuple[Any, SchemaPlace | None]] = [(schema, None)]
    while below:
        node, place = below.pop()
        if not isinstance(node, dict):
            continue
        node = cast("dict[str, Any]", node)
        if place is not None and isinstance(header := node.get(ANNOTATION), str):
            yield path_of(place), header, node.get("type")
        properties = node.get("properties")
        if isinstance(properties, dict):
            inner = cast("dict[str, Any]", properties)
            below += [(inner[name], SchemaPlace(place, name)) for name in reversed(inner)]


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


def read_before(request: HttpRequest) -> Message:
    """The message of a huge body, which was read in steps. Raises Malformed."""
    read: Message | Malformed = request.read
    if isinstance(read, Malformed):
        raise read
    return read


# Exchanges


class ModernExchange:
    """A host for the length of one request: the channel of its session, which writes to the HTTP response.

    The response is plain JSON with the right status unless something was sent before it.
    """

    backlog = 0
    since = 0.0  # when the request came
    _id = b""
    _response: ResponseWriter | None = None

    def __init__(
        self, exchanges: ModernExchanges, endpoint: Endpoint, input_requests: InputRequests
    ) -> None:
        self.key: ExchangeKey | None = None  # of requests that it can serve after this one
        self._exchanges = exchanges
        self.session = endpoint.exchange(self, input_requests)
        self.session.era.revision = MODERN
        self.session.on_idle = self._answered

    def begin(
        self,
        message: Message,
        response: ResponseWriter,
        now: float,
        refusal: RequestError | None = None,
    ) -> None:
        """Handle a request, or refuse it."""
        self._id = bytes(message.id)
        self._response = response
        self.since = now
        response.on_gone(self._lost)
        if refusal is None:
            self.session.receive(message)
        else:
            self.session.refuse_request(self._id, message.method, refusal)

    def send(self, frame: bytes, about: bytes = b"") -> None:
        response = self._response
        if response is None:
            return
        if not jsonrpc.answers(frame, self._id):
            response.stream()
            response.send(event(frame))
            return
        self._response = None
        if response.streaming:
            response.send(event(frame))
            response.end()
        elif jsonrpc.is_refusal(frame, self._id):
            response.plain(Reply(status_of(frame, self._id), frame, kind=JSON))
        else:
            response.json(frame)

    def _answered(self) -> None:
        self._exchanges.ended(self)

    def _lost(self) -> None:
        """The host has closed the response: that cancels its request."""
        self._response = None
        self.key = None
        self._exchanges.ended(self)

    def commit(self) -> None:
        """The reply takes long: start the stream, so that the host sees that we are alive."""
        if self._response is not None:
            self._response.stream()

    def comment(self) -> None:
        if self._response is not None and self._response.streaming:
            self._response.send(COMMENT)

    def cut_off(self) -> None:
        """No reply will come."""
        response, self._response = self._response, None
        if response is not None and response.streaming:
            response.end()
        elif response is not None:
            response.plain(CUT_OFF)
        self.key = None
        self._exchanges.ended(self)


class ModernExchanges:
    """All modern requests of a port.

    Making a session costs more than a call. One that is as good as new when its request was answered
    serves the next one with the same `_meta`, which a host repeats byte for byte.
    """

    def __init__(self, suspended: Expiry) -> None:
        self._suspended = suspended
        self.states: Callable[[str], RequestStates] | None = None  # of a principal; with replicas
        self._input_requests: dict[str, InputRequests] = {}  # by principal
        self._in_flight: set[ModernExchange] = set()
        self._free: dict[ExchangeKey, list[ModernExchange]] = {}
        self._free_count = 0
        self._now = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._in_flight)

    @property
    def has_suspended(self) -> bool:
        """Whether calls wait here for answers of their hosts."""
        return bool(self._suspended)

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        """Answer a request of a modern host that has passed the access checks."""
        try:
            is_read = request.read is not None
            message = read_before(request) if is_read else parse.read_body(request.body)
        except Malformed as error:
            response.plain(refused(400, str(error), id=error.id, code=error.code))
            return
        admitted: Admitted = request.admitted
        meta = bytes(message.params.meta) if isinstance(message, UseToolRequest) else b""
        if meta and meta == admitted.checked_meta and jsonrpc.usable_id(bytes(message.id)):
            self._begin(admitted, message, response, (admitted.endpoint, meta))
        elif self._is_right(request, response, message):
            if meta and len(meta) <= LONGEST_META and not admitted.endpoint.bare:
                admitted.checked_meta = meta
            self._begin(admitted, message, response)

    def _is_right(self, request: HttpRequest, response: ResponseWriter, message: Message) -> bool:
        """Check a request against its headers. If it is wrong, it is refused."""
        id = bytes(message.id)
        if not message.method or (id and not jsonrpc.usable_id(id)):
            problem = "one request or notification is expected, with a usable id"
            response.plain(refused(400, problem))
            return False
        if not id:
            response.plain(Reply(202))  # a notification: this revision has none over HTTP
            return False
        try:
            check_modern(request, message, request.admitted.endpoint.definition)
        except RequestError as refusal:
            questions = self._open_input_requests(request.admitted.principal.name)
            exchange = ModernExchange(self, request.admitted.endpoint, questions)
            self._in_flight.add(exchange)
            exchange.begin(message, response, self._now, refusal)
            return False
        return True

    def _begin(
        self,
        admitted: Admitted,
        message: Message,
        response: ResponseWriter,
        key: ExchangeKey | None = None,
    ) -> None:
        free = self._free.get(key) if key is not None else None
        if key is not None and free:
            exchange = free.pop()
            self._free_count -= 1
            if not free:
                del self._free[key]
        else:
            questions = self._open_input_requests(admitted.principal.name)
            exchange = ModernExchange(self, admitted.endpoint, questions)
        exchange.key = key
        exchange.session.public_origin = admitted.public_origin
        self._in_flight.add(exchange)
        exchange.begin(message, response, self._now)

    def _open_input_requests(self, principal: str) -> InputRequests:
        """Questions outlive the request that led to them; only the same principal may answer."""
        requests = self._input_requests.pop(principal, None)
        if requests is None:
            requests = InputRequests(principal, self._suspended, self.states)
            self._forget_idle()
        self._input_requests[principal] = requests  # the last one used is the last to be forgotten
        return requests

    def _forget_idle(self) -> None:
        """Make room among very many principals: those go whose calls do not wait for an answer."""
        if len(self._input_requests) < PRINCIPALS:
            return
        idle = [name for name, kept in self._input_requests.items() if kept.is_idle]
        for name in idle[: PRINCIPALS // 4]:
            del self._input_requests[name]

    def ended(self, exchange: ModernExchange) -> None:
        """Its request was answered or cancelled."""
        if exchange not in self._in_flight:  # closing its session cancels its request
            return
        self._in_flight.remove(exchange)
        key, session = exchange.key, exchange.session
        if key is None or not session.is_fresh:
            session.close()
            return
        if self._free_count >= FREE:
            self._close_free()
        self._free.setdefault(key, []).append(exchange)
        self._free_count += 1

    def _close_free(self) -> None:
        free, self._free, self._free_count = self._free, {}, 0
        for exchanges in free.values():
            for exchange in exchanges:
                exchange.session.close()

    # Time

    def tick(self, now: float, *, comment: bool) -> None:
        """Start late streams, write comments to silent ones."""
        self._now = now
        for exchange in tuple(self._in_flight):
            if now - exchange.since >= SILENCE:
                exchange.commit()
            if comment:
                exchange.comment()

    def stop(self) -> None:
        """End the streams that wait for nothing."""
        for exchange in tuple(self._in_flight):
            exchange.session.end_listening()

    def close(self) -> None:
        """Cancel what is still in flight."""
        for exchange in tuple(self._in_flight):
            exchange.cut_off()
        self._close_free()
