"""Calls and their results, translated between a host and a server of any two eras."""

from typing import Any

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.raw_json import Members, TooManyParts, changed, read_members
from mcp_workbench.protocol.downgrade import legacy_result
from mcp_workbench.protocol.revisions import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    META,
    MODERN,
    SERVER_INFO_KEY,
    VERSION_KEY,
)

encode = msgspec.json.encode

BRACE = ord("{")
_COMPLETE = b'"complete"'
# Metadata about one hop; the next hop has its own.
_HOP_KEYS = (VERSION_KEY, CLIENT_INFO_KEY, CAPABILITIES_KEY)


class EraPair(msgspec.Struct, frozen=True):
    """The eras of the two ends of a call."""

    modern_host: bool
    modern_server: bool


PAIRS = {
    (host, server): EraPair(host, server) for host in (False, True) for server in (False, True)
}


class Stamps(msgspec.Struct, frozen=True):
    """What we add to messages of the modern era, encoded once."""

    request: Members  # `_meta` of our requests to modern servers
    result: bytes  # members of a complete result to modern hosts
    server_info: msgspec.Raw


def stamps(implementation: dict[str, str]) -> Stamps:
    info = msgspec.Raw(encode(implementation))
    return Stamps(
        request={
            VERSION_KEY: msgspec.Raw(encode(MODERN)),
            CLIENT_INFO_KEY: info,
            CAPABILITIES_KEY: msgspec.Raw(b"{}"),
        },
        result=b'"resultType":"complete","_meta":' + encode({SERVER_INFO_KEY: info}),
        server_info=info,
    )


def params_for(pair: EraPair, name: bytes, call: CallRequest, number: int, own: Stamps) -> bytes:
    """Return a call's parameters for its server: name and `_meta` are ours, the rest stays as it came."""
    params = call.params
    if not call.meta and not pair.modern_server and len(params) == 1:
        return b'{"name":%b,"arguments":%b}' % (name, params["arguments"])
    parts = [b'{"name":', name, b',"arguments":', params["arguments"]]
    if call.meta or pair.modern_server:
        meta = meta_for(pair, call.meta, number, own)
        if pair.modern_server:
            meta[CAPABILITIES_KEY] = call.capabilities
        if meta:
            parts += (b',"_meta":', encode(meta))
    if len(params) > 1:
        for key in params:
            if key != "arguments":
                parts += (b",", encode(key), b":", params[key])
    parts.append(b"}")
    return b"".join(parts)


def meta_for(pair: EraPair, meta: Members, number: int, own: Stamps) -> Members:
    """Return `_meta` for the server: our hop instead of the host's, our number as progress token."""
    members = {key: value for key, value in meta.items() if _travels(key, pair)}
    if "progressToken" in members:  # the host's token is not forwarded
        members["progressToken"] = msgspec.Raw(b"%d" % number)
    if pair.modern_server:
        members.update(own.request)
    return members


def _travels(key: str, pair: EraPair) -> bool:
    if not pair.modern_host:  # its level comes from our session, for modern servers only
        return pair.modern_server or key != LOG_LEVEL_KEY
    return key not in _HOP_KEYS if pair.modern_server else not key.startswith(META)


class _ResultPeek(msgspec.Struct):
    resultType: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - as in the protocol
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


_peek = msgspec.json.Decoder(_ResultPeek).decode


class Unanswerable(Exception):
    """The server's result can't be forwarded; the message says why."""


def result_for(pair: EraPair, result: msgspec.Raw, own: Stamps) -> msgspec.Raw | bytes:
    """Return a server's result for its host; between legacy peers, the same bytes."""
    if not pair.modern_host and not pair.modern_server:
        return result
    try:
        peek = _peek(result)
    except msgspec.DecodeError:
        return result  # malformed: the host decides
    try:
        return _translated(pair, result, peek, own)
    except TooManyParts as error:
        raise Unanswerable(f"the server's result has {error}") from None


def _translated(
    pair: EraPair, result: msgspec.Raw, peek: _ResultPeek, own: Stamps
) -> msgspec.Raw | bytes:
    if pair.modern_server:
        _require_complete(peek)
        if not pair.modern_host:
            return legacy_result(result)
        if peek.resultType:
            return result
    return complete(result, own)


def asks_for_input(result: msgspec.Raw) -> bool:
    """Whether this modern result asks for input."""
    try:
        return bytes(_peek(result).resultType) == b'"input_required"'
    except msgspec.DecodeError:
        return False


def _require_complete(peek: _ResultPeek) -> None:
    kind = bytes(peek.resultType)
    if kind not in (b"", _COMPLETE) and encode(_kind(kind)) != _COMPLETE:  # it may have escapes
        raise Unanswerable(f"the server's result is {kind.decode()}, which is not supported")


def _kind(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:  # a number too large
        return None


def complete(result: msgspec.Raw | bytes, own: Stamps) -> bytes:
    """Add the members that a modern host requires to a result, by splicing its bytes."""
    peek = _peek(result)
    if not peek.meta and not peek.resultType:
        body = bytes(result).strip()[1:]
        comma = b"" if body.lstrip()[:1] == b"}" else b","
        return b"".join((b"{", own.result, comma, body))
    wanted: dict[str, bytes | None] = {"resultType": _COMPLETE}
    meta = peek.meta or msgspec.Raw(b"{}")
    if memoryview(meta)[0] == BRACE and SERVER_INFO_KEY not in read_members(meta):
        wanted["_meta"] = changed(meta, {SERVER_INFO_KEY: bytes(own.server_info)})
    return changed(result, wanted)


def with_token(params: msgspec.Raw, token: msgspec.Raw) -> bytes:
    """Return the parameters of a progress notification with the host's own token."""
    members = read_members(params)
    members["progressToken"] = token
    return encode(members)


def token_of(params: msgspec.Raw) -> Any:
    """Return the token of a progress notification."""
    return msgspec.json.decode(params, type=_Progress).progressToken


class _Progress(msgspec.Struct):
    progressToken: int | str  # noqa: N815 - as in the protocol
