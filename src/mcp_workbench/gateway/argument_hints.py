"""Whether arguments fit a tool's schema, and what a failed call is told about it."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.catalogue import Definition, read_object
from mcp_workbench.core.raw_json import (
    TOO_COMPLEX,
    TooComplex,
    TooManyParts,
    changed,
    checked,
    read_members,
)
from mcp_workbench.schema.mismatches import explain
from mcp_workbench.schema.signature import AMPLE, arguments_shape, signature_within

MOST_READ = 512 << 10  # bytes of a definition, and of arguments, that are compared
UNEXPLAINED = f"Whether the arguments fit the tool's schema is {TOO_COMPLEX}"


def hint_for(definition: Definition, request: CallRequest) -> str:
    """What is wrong with the arguments, and the signature; nothing where they seem right."""
    try:
        return misfit(definition, request)
    except TooComplex:
        return UNEXPLAINED


def misfit(definition: Definition, request: CallRequest) -> str:
    """The same. Raises TooComplex where nobody but the server can tell."""
    arguments = request.params["arguments"]
    if len(definition.raw) > MOST_READ or len(arguments) > MOST_READ:
        raise TooComplex
    try:
        schema: Any = read_object(definition.raw).get("inputSchema")
        wrong = explain(schema, read_object(arguments))
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


def result_with_hint(result: msgspec.Raw | bytes, hint: str) -> bytes:
    """A server's failed result with one more block of text, every other byte as it came.

    A result that has no list of blocks is none that anything could be added to.
    """
    block = msgspec.json.encode({"type": "text", "text": hint})
    try:
        content = bytes(read_members(result).get("content", b"")).strip()
        if not content.startswith(b"["):
            return bytes(result)
        before = content[:-1].rstrip()
        comma = b"" if before == b"[" else b","
        return checked(changed(result, {"content": b"".join((before, comma, block, b"]"))}), result)
    except TooManyParts:
        return bytes(result)


def error_with_hint(error: msgspec.Raw, message: str, hint: str) -> msgspec.Raw:
    """A server's error with a longer message, its code and data as they came."""
    words = msgspec.json.encode(f"{message}\n{hint}")
    try:
        return msgspec.Raw(checked(changed(error, {"message": words}), error))
    except TooManyParts:
        return error
