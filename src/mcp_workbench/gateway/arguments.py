"""Interceptors that compare a call's arguments with its tool's schema: before it, or after it failed.

Schemas are read only when they are needed: the modules for that are imported late.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.catalogue import Definition, read_object
from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.core.raw_json import (
    TOO_COMPLEX,
    TooComplex,
    TooManyParts,
    changed,
    checked,
    read_members,
)
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Completed,
    Interceptor,
    Refusal,
    Rejected,
)
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call

MOST_READ = (
    512 << 10
)  # bytes of a definition, of arguments, and of a result or an error that gets a hint
UNEXPLAINED = f"Whether the arguments fit the tool's schema is {TOO_COMPLEX}"

# Servers write `isError` among the last members of a result, or as the first one.
TAIL = 256  # bytes
FIRST = b'{"isError"'
IS_ERROR = re.compile(rb'"isError"\s*:\s*true').search


class ArgumentCheck(Interceptor):
    """Refuses a call whose arguments its tool's schema does not allow (`"validate": true`)."""

    def before(self, call: Call) -> Refusal | None:
        definition = call.definition
        try:
            wrong = "" if definition is None else misfit(definition, call.request)
        except TooComplex:  # only the server can tell
            return None
        if not wrong:
            return None
        problems, _, signature = wrong.partition("\n")
        return Refusal(InvalidCall(f"Invalid parameters: {problems}", hint=signature))


class ArgumentHints(Interceptor):
    """Adds to a failed call what is wrong with its arguments and what the tool takes."""

    failures_only = True

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        if not call.explains or call.definition is None:
            return outcome
        if isinstance(outcome, Completed) and may_be_error(outcome.result):
            if len(outcome.result) > MOST_READ:  # there is enough in it
                return outcome
            hint = hint_for(call.definition, call.request) if has_failed(outcome.result) else ""
            return Completed(result_with_hint(outcome.result, hint)) if hint else outcome
        if (
            isinstance(outcome, Rejected)
            and not outcome.is_ours
            and len(outcome.error) <= MOST_READ
        ):
            about = outcome.read()
            if about.code == jsonrpc.INVALID_PARAMS:
                hint = hint_for(call.definition, call.request)
                return Rejected(outcome.error, hint, about=about) if hint else outcome
        return outcome


# Comparing arguments with the schema


def hint_for(definition: Definition, request: CallRequest) -> str:
    """Return what is wrong with the arguments, and the signature; empty if they seem right."""
    try:
        return misfit(definition, request)
    except TooComplex:
        return UNEXPLAINED


def misfit(definition: Definition, request: CallRequest) -> str:
    """The same. Raises TooComplex if only the server can tell."""
    from mcp_workbench.schema.mismatches import explain  # not needed at start-up
    from mcp_workbench.schema.signature import AMPLE, arguments_shape, signature_within

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
    except (msgspec.DecodeError, RecursionError):  # malformed: there is nothing to say about it
        return ""


# Failed results, and hints added to them


def may_be_error(result: msgspec.Raw | bytes) -> bool:
    """Whether it is worth reading this result to see if its tool has failed."""
    is_short = len(result) <= TAIL
    tail = bytes(result) if is_short else bytes(memoryview(result)[-TAIL:])
    if tail.find(b"true") >= 0 and IS_ERROR(tail):  # `find` is cheaper than the pattern
        return True
    return not is_short and bytes(memoryview(result)[: len(FIRST)]) == FIRST


class _Outcome(msgspec.Struct, frozen=True):
    isError: bool = False  # noqa: N815 - as in the protocol


def has_failed(result: msgspec.Raw | bytes) -> bool:
    """Whether this is the result of a failed tool."""
    try:
        return msgspec.json.decode(result, type=_Outcome).isError
    except (msgspec.DecodeError, RecursionError):
        return False


def result_with_hint(result: msgspec.Raw | bytes, hint: str) -> bytes:
    """Return a failed result with the hint as one more block of text, every other byte unchanged.

    A result without a list of blocks is returned unchanged.
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
    """Return a server's error with the hint added to its message, its code and data unchanged."""
    text = msgspec.json.encode(f"{message}\n{hint}")
    try:
        return msgspec.Raw(checked(changed(error, {"message": text}), error))
    except TooManyParts:
        return error
