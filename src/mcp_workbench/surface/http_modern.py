"""A modern host over HTTP: its headers must say what its body says, and every POST stands alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from mcp_workbench.era.revision import HEADER_MISMATCH, MODERN, UNSUPPORTED_VERSION
from mcp_workbench.surface.http_params import differing
from mcp_workbench.surface.http_refusals import CUT_OFF
from mcp_workbench.surface.parse import (
    EnvelopeFault,
    Message,
    RequestError,
    UseToolRequest,
    read_meta,
    read_stamp,
)
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Malformed
from mcp_workbench.wire.headers import decode_value
from mcp_workbench.wire.http_message import COMMENT, JSON, Reply, Request, event
from mcp_workbench.wire.http_response import Response

MISSING_CAPABILITY = -32021

VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
# Which member of the parameters the name's header repeats.
_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
STATUS = {
    envelope.PARSE_ERROR: 400,
    envelope.INVALID_REQUEST: 400,
    envelope.INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    envelope.METHOD_NOT_FOUND: 404,
}


class _Routed(msgspec.Struct):
    """What a request's headers repeat."""

    name: msgspec.Raw = envelope.NOTHING
    uri: msgspec.Raw = envelope.NOTHING
    taskId: msgspec.Raw = envelope.NOTHING  # noqa: N815 - the wire's word
    arguments: msgspec.Raw = envelope.NOTHING
    meta: msgspec.Raw = msgspec.field(default=envelope.NOTHING, name="_meta")


_USE_TOOL = msgspec.Raw(envelope.encode("use_tool"))
_read_routed = msgspec.json.Decoder(_Routed).decode
_read_text = msgspec.json.Decoder(str).decode


def check_modern(request: Request, message: Message, definition: Callable[[str], bytes]) -> None:
    """Raise a RequestError where the envelope, the headers or the version are wrong, in this order.

    `definition` knows a tool as it was advertised: its arguments may have headers of their own.
    """
    routed = _routed(message)
    try:
        version = read_stamp(read_meta(routed.meta))
    except EnvelopeFault as fault:
        raise RequestError(envelope.INVALID_PARAMS, str(fault)) from None
    _check_headers(request, message.method, version, routed)
    if version != MODERN:
        data = {"supported": [MODERN], "requested": version}
        raise RequestError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if message.method == "tools/call":
        advertised = definition(_text(routed.name) or "")
        if wrong := differing(request, advertised, routed.arguments):
            raise mismatch(f"{wrong} differs from its argument")
    if message.method == "initialize":
        raise RequestError(
            envelope.METHOD_NOT_FOUND, f"Method not found: initialize (gone in {MODERN})"
        )


def _routed(message: Message) -> _Routed:
    if isinstance(message, UseToolRequest):
        return _Routed(name=_USE_TOOL, meta=message.params.meta)
    params = message.params
    try:
        return _read_routed(params) if params and not envelope.is_null(params) else _Routed()
    except msgspec.DecodeError:
        raise RequestError(envelope.INVALID_PARAMS, "params must be an object") from None


def _check_headers(request: Request, method: str, version: str, routed: _Routed) -> None:
    headers = request.headers
    for name in request.doubled:
        if name in (VERSION, METHOD, NAME):
            raise mismatch(f"the header {name.decode()} came twice")
    if headers.get(VERSION, b"") != version.encode():
        raise mismatch("MCP-Protocol-Version differs from the version in _meta")
    if headers.get(METHOD, b"") != method.encode():
        raise mismatch("Mcp-Method is missing or differs from the method")
    member = _NAMED.get(method)
    if member is None:
        return
    raw: msgspec.Raw = getattr(routed, member)
    told = headers.get(NAME)
    if (raw or told is not None) and _text(raw) != (None if told is None else decode_value(told)):
        raise mismatch(f"Mcp-Name is missing or differs from params.{member}")


def _text(raw: msgspec.Raw) -> str | None:
    try:
        return _read_text(raw) if raw else None
    except msgspec.DecodeError:
        return None


def mismatch(message: str) -> RequestError:
    return RequestError(HEADER_MISMATCH, f"Header mismatch: {message}")


def status_of(frame: bytes, id: bytes) -> int:
    """The HTTP status that goes with an answer: an error that is the request's own fault has one."""
    if not envelope.is_refusal(frame, id):
        return 200
    try:
        told = envelope.read_error(envelope.decode(frame).error)
    except Malformed:  # a server's error that could be handed on, and is too deep to look into
        return 200
    return STATUS.get(told.code, 200)


class Exchange:
    """One modern request: the channel of its session, which is its response.

    The answer is plain JSON with the right status while nothing had to be said before it.
    """

    backlog = 0

    def __init__(self, response: Response, id: bytes, since: float) -> None:
        self.since = since
        self._response = response
        self._id = id
        self._close: Callable[[], None] | None = None

    def send(self, frame: bytes, about: bytes = b"") -> None:
        response = self._response
        if not envelope.answers(frame, self._id):
            response.stream()
            response.send(event(frame[:-1]))
            return
        if response.streaming:
            response.send(event(frame[:-1]))
            response.end()
        else:
            response.plain(Reply(status_of(frame, self._id), frame, kind=JSON))
        # Soon, not now: the conversation is in the middle of answering.
        asyncio.get_running_loop().call_soon(self.close)

    def on_close(self, act: Callable[[], None], finish: Callable[[], None]) -> None:
        """What ends the session: its answer is out, or the host has closed the response.

        `finish` asks it to come to an end by itself: a stream of changes never would.
        """
        self._close = act
        self.finish = finish
        self._response.on_gone(self.close)

    def close(self) -> None:
        act, self._close = self._close, None
        if act is not None:
            act()

    def commit(self) -> None:
        """It takes long: the host should see that we live."""
        self._response.stream()

    def comment(self) -> None:
        if self._response.streaming:
            self._response.send(COMMENT)

    def end(self) -> None:
        """No answer will come."""
        if self._response.streaming:
            self._response.end()
        else:
            self._response.plain(CUT_OFF)
        self.close()
