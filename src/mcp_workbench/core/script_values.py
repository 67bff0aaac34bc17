"""What a script sees of a result, and what its answer shows of the script's value."""

from collections.abc import Callable
from typing import Any

import msgspec

from mcp_workbench.core.raw_json import Members, read_any, read_elements, read_members

MOST_BLOCKS = 10_000  # of one result
LONGEST_FAILURE = 4000  # characters of a server's text in an exception

Keep = Callable[[msgspec.Raw], str]  # keeps a block of content, and returns its handle


class CallValue(msgspec.Struct, frozen=True):
    """One result as a script gets it."""

    json: bytes
    is_text: bool = False  # it may be JSON: `parsed_text` finds out, in the process of scripts
    failure: str | None = None  # the tool's own text, if it says that it failed
    meta: msgspec.Raw | None = None  # `_meta` of the result


class _Block(msgspec.Struct, frozen=True):
    type: str = ""
    text: str | None = None
    mimeType: str = ""  # noqa: N815 - as in the protocol


class ContentHandle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Content other than text, which a script can return."""

    content: str
    type: str
    mime_type: str = ""


def call_value(result: msgspec.Raw | bytes, keep: Keep) -> CallValue:
    """Return what the script gets: structured data, text that is JSON, text, or handles of content.

    Raises a DecodeError if the result is malformed.
    """
    members = read_members(result)
    blocks = read_elements(members.get("content", b"[]"), MOST_BLOCKS)
    meta = members.get("_meta")
    if bytes(members.get("isError", b"")) == b"true":
        return CallValue(b"null", failure=_failure(blocks), meta=meta)
    data = members.get("structuredContent")
    if data is not None and bytes(data) != b"null":
        return CallValue(_unwrapped(data), meta=meta)
    read = [(raw, _block(raw)) for raw in blocks]
    if all(block.type == "text" and block.text is not None for _, block in read):
        text = "\n".join(block.text or "" for _, block in read)
        return CallValue(msgspec.json.encode(text), is_text=True, meta=meta)
    return CallValue(_mixed(read, keep), meta=meta)


def _unwrapped(data: msgspec.Raw) -> bytes:
    """A lone `{"result": x}` is how SDKs wrap what is no object."""
    if bytes(memoryview(data)[:1]) != b"{":
        return bytes(data)
    members = read_members(data)
    return bytes(members["result"]) if list(members) == ["result"] else bytes(data)


def _mixed(read: list[tuple[msgspec.Raw, _Block]], keep: Keep) -> bytes:
    """Texts, and handles of everything else."""
    parts = [
        msgspec.json.encode(block.text)
        if block.type == "text" and block.text is not None
        else msgspec.json.encode(ContentHandle(keep(raw), block.type, block.mimeType))
        for raw, block in read
    ]
    return parts[0] if len(parts) == 1 else b"[%b]" % b",".join(parts)


def parsed_text(text: str) -> Any:
    """Return the value of a text that is JSON; any other text itself.

    A number that would be written differently stays text: `1.10` may be a version.
    """
    try:
        value: Any = read_any(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    is_plain = text.lstrip()[:1] not in ("{", "[")
    return text if is_plain and msgspec.json.encode(value).decode() != text else value


def _block(raw: msgspec.Raw) -> _Block:
    try:
        return msgspec.json.decode(raw, type=_Block)
    except msgspec.DecodeError:
        return _Block()


def _failure(blocks: list[msgspec.Raw]) -> str:
    texts = [block.text for block in map(_block, blocks) if block.type == "text" and block.text]
    return shortened("\n".join(texts)) or "the tool failed, and does not say why"


def shortened(text: str, most: int = LONGEST_FAILURE) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


# The answer


def answer_text(printed: str, value: msgspec.Raw | bytes) -> str:
    """Return what the script printed, and below it its value: text as it is, anything else as JSON."""
    written = bytes(value)
    shown = ""
    if written.startswith(b'"'):
        shown = msgspec.json.decode(written, type=str)
    elif written not in (b"", b"null"):
        shown = written.decode()
    lines = printed.removesuffix("\n") if shown else printed
    return "\n".join(part for part in (lines, shown) if part)


def returned_content(value: msgspec.Raw | bytes, kept: Members) -> list[msgspec.Raw]:
    """Return the blocks whose handle occurs in the script's value."""
    written = bytes(value)
    return [block for handle, block in kept.items() if b'"%b"' % handle.encode() in written]
