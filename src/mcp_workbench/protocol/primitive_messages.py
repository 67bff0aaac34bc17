"""Prompts, resources, completion, logging and subscriptions between a host and a server of any eras."""

import re

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import (
    LONGEST_NAME,
    Members,
    TooLong,
    TooManyParts,
    changed,
    read_members,
    read_name,
)
from mcp_workbench.protocol.handshake import (
    CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    SUBSCRIPTION_KEY,
    Stamps,
)
from mcp_workbench.protocol.translation import (
    EraPair,
    declared,
    encode,
    is_object,
    meta_for,
)

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
RESOURCE_NOT_FOUND = -32002  # legacy
_MODERN_LEGACY, _LEGACY_MODERN = EraPair(True, False), EraPair(False, True)  # noqa: FBT003 - host, server
INVALID_PARAMS = -32602  # modern: this also means an unknown resource


def request_params(
    pair: EraPair, members: Members, call: CallRequest, number: int, own: Stamps
) -> bytes:
    """Return the parameters for the server: members as they came, `_meta` of our hop."""
    if not call.meta and not pair.modern_server:
        return encode(members)
    meta = meta_for(pair, call.meta, number, own)
    if pair.modern_server:
        meta[CAPABILITIES_KEY] = declared(call)
    return encode({**members, "_meta": meta})


class _CachePeek(msgspec.Struct, frozen=True):
    ttlMs: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - as in the protocol
    cacheScope: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


def with_cache(result: msgspec.Raw | bytes) -> msgspec.Raw | bytes:
    """Add the cache hints that a modern host requires: a result without any must not be cached."""
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
    except TooManyParts:  # nobody would cache such a result
        return result


class _ErrorPeek(msgspec.Struct, frozen=True):
    code: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Uri(msgspec.Struct, frozen=True):
    uri: str = ""


def read_error_for(pair: EraPair, error: bytes, asked: str, shown: str) -> bytes:
    """Translate an error of `resources/read`: each era has its own code for an unknown resource."""
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
    is_not_found = code in (RESOURCE_NOT_FOUND, INVALID_PARAMS) and named in (asked, "")
    is_changed = is_not_found and (code != peek.code or (named == asked and asked != shown))
    if not is_changed:
        return error
    data = bytes(peek.data) if is_object(peek.data) else b"{}"
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


def _uri_of(data: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(data, type=_Uri).uri
    except msgspec.DecodeError:
        return ""


def not_found_code(*, modern_host: bool) -> int:
    return INVALID_PARAMS if modern_host else RESOURCE_NOT_FOUND


# Logging


def level_in(meta: Members) -> str:
    """Return the log level that a modern request asks for; empty for none. Raises ValueError."""
    raw = meta.get(LOG_LEVEL_KEY)
    return "" if raw is None else read_level(raw)


def read_level(raw: msgspec.Raw) -> str:
    """Decode a log level. Raises ValueError if there is no such level."""
    try:
        level = read_name(raw)
    except msgspec.DecodeError:
        level = ""
    if level not in LEVELS:
        raise ValueError(f"the log level must be one of {', '.join(LEVELS)}")
    return level


def reaches(level: str, least: str) -> bool:
    """Whether a message of this level passes the least level asked for. An unknown one always does."""
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(least)


def most_verbose(levels: list[str]) -> str:
    return min(levels, key=LEVELS.index, default="")


LONG = 1 << 20  # bytes of a message whose level is sought at its start, where most servers write it
LONGEST_START = 64
_LEVEL_FIRST = re.compile(rb'\s*\{\s*"level"\s*:\s*"([a-z]+)"').match


class _Message(msgspec.Struct, frozen=True):
    level: msgspec.Raw = msgspec.Raw(b'""')


def level_of(params: msgspec.Raw) -> str:
    """The level of a `notifications/message`. Raises TooLong."""
    if len(params) > LONG and (first := _LEVEL_FIRST(bytes(memoryview(params)[:LONGEST_START]))):
        return first[1].decode()
    try:
        return read_name(msgspec.json.decode(params, type=_Message).level)
    except TooLong:
        raise
    except msgspec.DecodeError:
        return ""


# Subscriptions


class _Updated(msgspec.Struct, frozen=True):
    uri: msgspec.Raw = msgspec.Raw(b'""')


def check_uri(params: msgspec.Raw) -> None:
    """Raises TooLong for a `notifications/resources/updated` whose URI nobody would read."""
    try:
        uri = msgspec.json.decode(params, type=_Updated).uri
    except msgspec.DecodeError:
        return
    if len(uri) > LONGEST_NAME:
        raise TooLong("uri")


class _Tagged(msgspec.Struct, frozen=True):
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="_meta")


def subscription_of(params: msgspec.Raw) -> int:
    """Return the number of our `subscriptions/listen` that a notification belongs to; 0 for none."""
    try:
        tagged = msgspec.json.decode(params, type=_Tagged)
        return msgspec.json.decode(read_members(tagged.meta)[SUBSCRIPTION_KEY], type=int)
    except (KeyError, msgspec.DecodeError):
        return 0


def tagged(params: msgspec.Raw | bytes, subscription: bytes) -> bytes:
    """Return the parameters of a notification, tagged with the host's subscription in `_meta`."""
    members = read_members(params)
    meta = _members_of(members.get("_meta", msgspec.Raw(b"null")))
    meta[SUBSCRIPTION_KEY] = msgspec.Raw(subscription)
    return encode({**members, "_meta": meta})


def untagged(params: msgspec.Raw) -> Members:
    """Return the parameters of a notification without the tag of our own subscription."""
    members = read_members(params)
    meta = _members_of(members.pop("_meta", msgspec.Raw(b"null")))
    meta.pop(SUBSCRIPTION_KEY, None)
    return {**members, "_meta": msgspec.Raw(encode(meta))} if meta else members
