"""Requests beside calls, their results and errors, between a host and a server of any two eras."""

import msgspec

from mcp_workbench.bounded import TooManyParts
from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.splice import changed
from mcp_workbench.era.revision import CAPABILITIES_KEY, LOG_LEVEL_KEY, SUBSCRIPTION_KEY
from mcp_workbench.era.translate import (
    BRACE,
    Members,
    Pair,
    Stamps,
    encode,
    meta_for,
    read_members,
)

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
RESOURCE_NOT_FOUND = -32002  # legacy
_MODERN_LEGACY, _LEGACY_MODERN = Pair(True, False), Pair(False, True)  # noqa: FBT003 - host, server
INVALID_PARAMS = -32602  # modern hosts are told of an unknown resource by this


def request_params(
    pair: Pair, members: Members, call: CallRequest, number: int, own: Stamps
) -> bytes:
    """Parameters as the server gets them: members as they stand, `_meta` of our hop."""
    if not call.meta and not pair.modern_server:
        return encode(members)
    meta = meta_for(pair, call.meta, number, own)
    if pair.modern_server:
        meta[CAPABILITIES_KEY] = call.capabilities
    return encode({**members, "_meta": meta})


class _CachePeek(msgspec.Struct):
    ttlMs: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - the wire's word
    cacheScope: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


def with_cache(result: msgspec.Raw | bytes) -> msgspec.Raw | bytes:
    """A modern host must be told how long it may keep what it has read: if nobody said so, not at all."""
    try:
        peek = msgspec.json.decode(result, type=_CachePeek)
    except msgspec.DecodeError:
        return result
    if peek.ttlMs and peek.cacheScope:
        return result
    wanted: dict[str, bytes] = {} if peek.ttlMs else {"ttlMs": b"0"}
    wanted = wanted if peek.cacheScope else {**wanted, "cacheScope": b'"private"'}
    try:
        return changed(result, wanted)
    except TooManyParts:  # no such result was ever meant to be kept
        return result


class _ErrorPeek(msgspec.Struct):
    code: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Uri(msgspec.Struct):
    uri: str = ""


def read_error_for(pair: Pair, error: bytes, asked: str, shown: str) -> bytes:
    """The error of `resources/read`: each era has its own code for a resource that is not there."""
    try:
        peek = msgspec.json.decode(error, type=_ErrorPeek)
    except msgspec.DecodeError:
        return error
    named = _uri_of(peek.data)
    code = peek.code
    if pair == _MODERN_LEGACY and code == RESOURCE_NOT_FOUND:
        code = INVALID_PARAMS
    elif pair == _LEGACY_MODERN and code == INVALID_PARAMS and named == asked:
        code = RESOURCE_NOT_FOUND
    told = code in (RESOURCE_NOT_FOUND, INVALID_PARAMS) and named in (asked, "")
    renamed = told and (code != peek.code or (named == asked and asked != shown))
    if not renamed:
        return error
    data = bytes(peek.data) if _is_object(peek.data) else b"{}"
    try:
        data = changed(data, {"uri": encode(shown)})
        return changed(error, {"code": encode(code), "data": data})
    except TooManyParts:
        return error


def _members_of(data: msgspec.Raw) -> Members:
    try:
        return read_members(data)
    except msgspec.DecodeError:
        return {}


def _is_object(data: msgspec.Raw) -> bool:
    return memoryview(data)[0] == BRACE


def _uri_of(data: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(data, type=_Uri).uri
    except msgspec.DecodeError:
        return ""


def not_found_code(*, modern_host: bool) -> int:
    return INVALID_PARAMS if modern_host else RESOURCE_NOT_FOUND


# Logging


def level_in(meta: Members) -> str:
    """The level that a modern request asks for; empty for none. Raises ValueError for an odd one."""
    raw = meta.get(LOG_LEVEL_KEY)
    return "" if raw is None else read_level(raw)


def read_level(raw: msgspec.Raw) -> str:
    """A level by its name. Raises ValueError where it is none."""
    try:
        level = msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        level = ""
    if level not in LEVELS:
        raise ValueError(f"the log level must be one of {', '.join(LEVELS)}")
    return level


def reaches(level: str, wish: str) -> bool:
    """Is a message of this level for somebody with this wish? An unknown level is for everybody."""
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wish)


def most_verbose(wishes: list[str]) -> str:
    return min(wishes, key=LEVELS.index, default="")


class _Message(msgspec.Struct):
    level: str = ""


def level_of(params: msgspec.Raw) -> str:
    """The level of a `notifications/message`."""
    try:
        return msgspec.json.decode(params, type=_Message).level
    except msgspec.DecodeError:
        return ""


# Listening


class _Tagged(msgspec.Struct):
    meta: dict[str, msgspec.Raw] = msgspec.field(
        default_factory=dict[str, msgspec.Raw], name="_meta"
    )


def subscription_of(params: msgspec.Raw) -> int:
    """The number of the request to listen that a frame belongs to; 0 where it names none."""
    try:
        tagged = msgspec.json.decode(params, type=_Tagged)
        return msgspec.json.decode(tagged.meta[SUBSCRIPTION_KEY], type=int)
    except (KeyError, msgspec.DecodeError):
        return 0


def tagged(params: msgspec.Raw | bytes, subscription: bytes) -> bytes:
    """A frame of a host's listening: `_meta` says which request it belongs to."""
    members = read_members(params)
    meta = _members_of(members.get("_meta", msgspec.Raw(b"null")))
    meta[SUBSCRIPTION_KEY] = msgspec.Raw(subscription)
    return encode({**members, "_meta": meta})


def untagged(params: msgspec.Raw) -> bytes:
    """A frame without the mark of our own listening."""
    members = read_members(params)
    meta = _members_of(members.pop("_meta", msgspec.Raw(b"null")))
    meta.pop(SUBSCRIPTION_KEY, None)
    return encode({**members, "_meta": meta} if meta else members)
