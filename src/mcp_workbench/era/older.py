"""What a modern server may say and a legacy host can't read: left out, or said in words."""

import msgspec

from mcp_workbench.bounded import read_elements, read_members
from mcp_workbench.core.splice import changed

encode = msgspec.json.encode

BRACE = ord("{")
MOST_BLOCKS = 10_000  # of a result that is looked into
# The member that every modern result has, as most servers write it.
_MEMBER, _LAST = b'"resultType":"complete",', b',"resultType":"complete"}'


class _Modern(msgspec.Struct):
    """What is not for legacy hosts."""

    resultType: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - the wire's word
    ttlMs: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    cacheScope: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    structuredContent: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815
    content: msgspec.Raw = msgspec.Raw(b"[]")


_read_modern = msgspec.json.Decoder(_Modern).decode


def legacy_result(result: msgspec.Raw) -> msgspec.Raw | bytes:
    """A modern server's result for a legacy host, whose structured content is always an object."""
    found = _read_modern(result)
    if not found.ttlMs and not found.cacheScope and _is_object(found.structuredContent):
        if not found.resultType:
            return result
        whole = bytes(result)
        last = whole.endswith(_LAST)
        told = whole[: -len(_LAST)] + b"}" if last else whole.replace(_MEMBER, b"", 1)
        if not _read_modern(told).resultType:  # it was that one, and the only one
            return told
    wanted: dict[str, bytes | None] = dict.fromkeys(("resultType", "ttlMs", "cacheScope"))
    if not _is_object(found.structuredContent):
        wanted["structuredContent"] = None
        wanted |= _in_words(found)
    return changed(result, wanted)


def _in_words(found: _Modern) -> dict[str, bytes]:
    """The content with the structured one as text, unless there are words already."""
    try:
        blocks = read_elements(found.content, MOST_BLOCKS)
        told = any(msgspec.json.decode(block, type=_Block).type == "text" for block in blocks)
    except msgspec.DecodeError:
        return {}
    if told:
        return {}
    text = encode({"type": "text", "text": bytes(found.structuredContent).decode()})
    inside = bytes(found.content)[:-1]
    return {"content": inside + (b"," if blocks else b"") + text + b"]"}


class _Block(msgspec.Struct):
    type: str = ""


def legacy_definition(raw: bytes) -> bytes:
    """A modern server's tool for a legacy host, which would refuse any other output than an object."""
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
