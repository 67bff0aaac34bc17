"""Results and definitions of a modern server for a legacy host: what it can't read is left out."""

import msgspec

from mcp_workbench.core.raw_json import changed, read_elements, read_members

encode = msgspec.json.encode

BRACE = ord("{")
MOST_BLOCKS = 10_000  # of content, in which a text is sought
# The member of every modern result, as most servers write it.
_MEMBER, _LAST = b'"resultType":"complete",', b',"resultType":"complete"}'


class _Modern(msgspec.Struct):
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
    if not modern.ttlMs and not modern.cacheScope and _is_object(modern.structuredContent):
        if not modern.resultType:
            return result
        whole = bytes(result)
        last = whole.endswith(_LAST)
        legacy = whole[: -len(_LAST)] + b"}" if last else whole.replace(_MEMBER, b"", 1)
        if not _read_modern(legacy).resultType:  # it was that one, and the only one
            return legacy
    wanted: dict[str, bytes | None] = dict.fromkeys(("resultType", "ttlMs", "cacheScope"))
    if not _is_object(modern.structuredContent):
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


class _Block(msgspec.Struct):
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


def _is_object(raw: msgspec.Raw) -> bool:
    return memoryview(raw)[0] == BRACE
