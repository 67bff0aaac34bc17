"""A call that missed, answered with what its tool takes: the server's own words come first."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.catalogue import Definition, read_object
from mcp_workbench.core.misfits import misfits
from mcp_workbench.core.shape import arguments_shape
from mcp_workbench.core.signature import AMPLE, signature_within
from mcp_workbench.core.splice import changed
from mcp_workbench.era.translate import read_members


def lesson(definition: Definition, call: ToolCall) -> str:
    """What is wrong with the call's arguments, and the signature; nothing where they seem right."""
    try:
        schema: Any = read_object(definition.raw).get("inputSchema")
        wrong = misfits(schema, read_object(call.params["arguments"]))
        if not wrong:
            return ""
        signature = signature_within(AMPLE, definition.name, arguments_shape(schema))
        return f"{'; '.join(wrong)}\n{signature.text}"
    except (msgspec.DecodeError, RecursionError):  # too odd to say anything about it
        return ""


class _Outcome(msgspec.Struct):
    isError: bool = False  # noqa: N815 - the wire's word


def has_failed(result: msgspec.Raw | bytes) -> bool:
    try:
        return msgspec.json.decode(result, type=_Outcome).isError
    except (msgspec.DecodeError, RecursionError):
        return False


def taught_result(result: msgspec.Raw | bytes, told: str) -> bytes:
    """A server's failed result with one more block of text, every other byte as it came."""
    content = read_members(result).get("content")
    if content is None:
        return bytes(result)
    block = msgspec.json.encode({"type": "text", "text": told})
    before = bytes(content).rstrip()[:-1].rstrip()
    comma = b"" if before == b"[" else b","
    return changed(result, {"content": b"".join((before, comma, block, b"]"))})


def taught_error(error: msgspec.Raw, message: str, told: str) -> msgspec.Raw:
    """A server's error with more words, its code and data as they came."""
    words = msgspec.json.encode(f"{message}\n{told}")
    return msgspec.Raw(changed(error, {"message": words}))
