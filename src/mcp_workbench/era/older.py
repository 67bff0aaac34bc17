"""What a modern server may say and a legacy host can't read: left out, or said in words."""

import msgspec

Members = dict[str, msgspec.Raw]

read_members = msgspec.json.Decoder(Members).decode
encode = msgspec.json.encode

BRACE = ord("{")
_MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")


def legacy_result(result: msgspec.Raw) -> bytes:
    """A modern server's result for a legacy host, whose structured content is always an object."""
    members = {k: v for k, v in read_members(result).items() if k not in _MODERN_ONLY}
    structured = members.get("structuredContent")
    if structured is not None and not _is_object(structured):
        del members["structuredContent"]
        members["content"] = _with_text(members, structured)
    return encode(members)


def _with_text(members: Members, structured: msgspec.Raw) -> msgspec.Raw:
    """The content with the structured one as text, unless there are words already."""
    content = members.get("content", msgspec.Raw(b"[]"))
    try:
        blocks = msgspec.json.decode(content, type=list[msgspec.Raw])
        told = any(msgspec.json.decode(block, type=_Block).type == "text" for block in blocks)
    except msgspec.DecodeError:
        return content
    text = encode({"type": "text", "text": bytes(structured).decode()})
    return content if told else msgspec.Raw(encode([*blocks, msgspec.Raw(text)]))


class _Block(msgspec.Struct):
    type: str = ""


def legacy_definition(raw: bytes) -> bytes:
    """A modern server's tool for a legacy host, which would refuse any other output than an object."""
    members = read_members(raw)
    schema = members.get("outputSchema")
    if schema is None or _describes_object(schema):
        return raw
    del members["outputSchema"]
    return encode(members)


def _describes_object(schema: msgspec.Raw) -> bool:
    try:
        return msgspec.json.decode(schema, type=_Block).type == "object"
    except msgspec.DecodeError:
        return False


def _is_object(raw: msgspec.Raw) -> bool:
    return memoryview(raw)[0] == BRACE
