"""Calls, results and definitions, translated between a host and a server of any two eras.

A legacy host gets nothing of a modern server that it can't read.
"""

from typing import Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import (
    Members,
    TooManyParts,
    changed,
    read_elements,
    read_members,
)
from mcp_workbench.protocol.extensions import OURS_ENCODED
from mcp_workbench.protocol.handshake import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    META,
    SERVER_INFO_KEY,
    VERSION_KEY,
    Stamps,
)

encode = msgspec.json.encode

_BRACE = ord("{")
MOST_BLOCKS = 10_000  # of content, in which a text is sought
_COMPLETE = b'"complete"'
_EVERYTHING = msgspec.Raw(b'"debug"')  # the log level
# Members of a call beside those that it always has. We declare no tasks to hosts, so `task` is ignored,
# as the protocol says: a server would start a task that nobody can ask for.
_NOT_FORWARDED = ("arguments", "task")
# Metadata about one hop; the next hop has its own.
_HOP_KEYS = (VERSION_KEY, CLIENT_INFO_KEY, CAPABILITIES_KEY)


class EraPair(msgspec.Struct, frozen=True):
    """The eras of the two ends of a call."""

    modern_host: bool
    modern_server: bool


PAIRS = {
    (host, server): EraPair(host, server) for host in (False, True) for server in (False, True)
}

LEGACY_TO_MODERN = PAIRS[False, True]


# Calls to a server


def with_logs(call: CallRequest) -> CallRequest:
    """Return a legacy host's call for a modern server, which else would log nothing.

    A legacy server logs until it is told otherwise; what the host has set as its level counts more.
    """
    if LOG_LEVEL_KEY in call.meta:
        return call
    return msgspec.structs.replace(call, meta={LOG_LEVEL_KEY: _EVERYTHING, **call.meta})


def params_for(pair: EraPair, name: bytes, call: CallRequest, number: int, own: Stamps) -> bytes:
    """Return a call's parameters for its server: name and `_meta` are ours, the rest stays as it came."""
    params = call.params
    if not call.meta and not pair.modern_server and len(params) == 1:
        return b'{"name":%b,"arguments":%b}' % (name, params["arguments"])
    parts = [b'{"name":', name, b',"arguments":', params["arguments"]]
    if call.meta or pair.modern_server:
        meta = meta_for(pair, call.meta, number, own)
        if pair.modern_server:
            meta[CAPABILITIES_KEY] = declared(call)
        if meta:
            parts += (b',"_meta":', encode(meta))
    if len(params) > 1:
        for key in params:
            if key not in _NOT_FORWARDED:
                parts += (b",", encode(key), b":", params[key])
    parts.append(b"}")
    return b"".join(parts)


def declared(call: CallRequest) -> msgspec.Raw:
    """Return the capabilities that this call declares to its server; a call without a host has ours."""
    return call.capabilities if len(call.capabilities) > len(b"{}") else OURS_ENCODED


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


# Results for a host


class _ResultPeek(msgspec.Struct, frozen=True):
    resultType: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - as in the protocol
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


_peek = msgspec.json.Decoder(_ResultPeek).decode


class Unanswerable(Exception):
    """The server's result can't be forwarded; the message says why."""


class UnknownResultType(Unanswerable):
    """It is of a kind that the protocol does not define."""


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
        raise UnknownResultType(f"the server's result is {kind.decode()}, which is not supported")


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
    if is_object(meta) and SERVER_INFO_KEY not in read_members(meta):
        wanted["_meta"] = changed(meta, {SERVER_INFO_KEY: bytes(own.server_info)})
    return changed(result, wanted)


# Results and definitions of a modern server for a legacy host

# The member of every modern result, as most servers write it.
_MEMBER, _LAST = b'"resultType":"complete",', b',"resultType":"complete"}'


class _Modern(msgspec.Struct, frozen=True):
    """Members that legacy hosts do not know, or read differently."""

    resultType: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - as in the protocol
    ttlMs: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    cacheScope: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    structuredContent: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815
    content: msgspec.Raw = msgspec.Raw(b"[]")


_read_modern = msgspec.json.Decoder(_Modern).decode


def legacy_result(result: msgspec.Raw) -> msgspec.Raw | bytes:
    """Convert a result. For a legacy host, structured content must be an object; else it becomes text."""
    modern = _read_modern(result)
    if not modern.ttlMs and not modern.cacheScope and is_object(modern.structuredContent):
        if not modern.resultType:
            return result
        whole = bytes(result)
        last = whole.endswith(_LAST)
        legacy = whole[: -len(_LAST)] + b"}" if last else whole.replace(_MEMBER, b"", 1)
        if not _read_modern(legacy).resultType:  # it was that one, and the only one
            return legacy
    wanted: dict[str, bytes | None] = dict.fromkeys(("resultType", "ttlMs", "cacheScope"))
    if not is_object(modern.structuredContent):
        wanted["structuredContent"] = None
        wanted |= _content_with_text(modern)
    return changed(result, wanted)


def _content_with_text(modern: _Modern) -> dict[str, bytes]:
    """Return the content with the structured content as text, unless it has a text already."""
    try:
        blocks = read_elements(modern.content, MOST_BLOCKS)
        has_text = any(msgspec.json.decode(block, type=_Block).type == "text" for block in blocks)
    except msgspec.DecodeError:
        return {}
    if has_text:
        return {}
    text = encode({"type": "text", "text": bytes(modern.structuredContent).decode()})
    inside = bytes(modern.content)[:-1]
    return {"content": inside + (b"," if blocks else b"") + text + b"]"}


class _Block(msgspec.Struct, frozen=True):
    type: str = ""


def legacy_definition(raw: bytes) -> bytes:
    """Convert a tool definition. A legacy host rejects an output schema of anything but an object."""
    schema = read_members(raw).get("outputSchema")
    if schema is None or _describes_object(schema):
        return raw
    return changed(raw, {"outputSchema": None})


def _describes_object(schema: msgspec.Raw) -> bool:
    try:
        return msgspec.json.decode(schema, type=_Block).type == "object"
    except msgspec.DecodeError:
        return False


# Progress


def with_token(params: msgspec.Raw, token: msgspec.Raw) -> bytes:
    """Return the parameters of a progress notification with the host's own token."""
    members = read_members(params)
    members["progressToken"] = token
    return encode(members)


def token_of(params: msgspec.Raw) -> int:
    """Return the token of a progress notification; 0 for one that is none of our numbers."""
    token = bytes(memoryview(_read_progress(params).progressToken)[:_DIGITS])
    return int(token) if token.isdigit() and len(token) < _DIGITS else 0


class _Progress(msgspec.Struct, frozen=True):
    progressToken: msgspec.Raw  # noqa: N815 - as in the protocol


_DIGITS = 19  # more than any of our numbers has
_read_progress = msgspec.json.Decoder(_Progress).decode


def is_object(json: msgspec.Raw) -> bool:
    """Whether this JSON is an object."""
    return memoryview(json)[0] == _BRACE
