"""Interceptors that compare a call's arguments with its tool's schema."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.errors import InvalidCall
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

# Servers write `isError` last, or nearly so, or as the very first: nothing else of a result is read.
TAIL = 256  # bytes
FIRST = b'{"isError"'
IS_ERROR = re.compile(rb'"isError"\s*:\s*true').search


def may_be_error(result: msgspec.Raw | bytes) -> bool:
    """Is it worth a closer look whether the tool has failed?"""
    is_short = len(result) <= TAIL
    tail = bytes(result) if is_short else bytes(memoryview(result)[-TAIL:])
    if tail.find(b"true") >= 0 and IS_ERROR(tail):  # `find`, as in `envelope.has`
        return True
    return not is_short and bytes(memoryview(result)[: len(FIRST)]) == FIRST


class ArgumentCheck(Interceptor):
    """Refuses a call whose arguments its tool's schema does not allow (`"validate": true`)."""

    def before(self, call: Call) -> Refusal | None:
        from mcp_workbench.core.raw_json import TooComplex
        from mcp_workbench.gateway.argument_hints import misfit  # a reader of schemas

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
            return self._completed(call, outcome)
        if isinstance(outcome, Rejected) and not outcome.is_ours:
            code = jsonrpc.read_error(outcome.error).code
            if code == jsonrpc.INVALID_PARAMS and (hint := _hint(call)):
                return Rejected(outcome.error, hint)
        return outcome

    def _completed(self, call: Call, outcome: Completed) -> Completed:
        from mcp_workbench.gateway.argument_hints import has_failed, result_with_hint

        hint = _hint(call) if has_failed(outcome.result) else ""
        return Completed(result_with_hint(outcome.result, hint)) if hint else outcome


def _hint(call: Call) -> str:
    from mcp_workbench.gateway.argument_hints import hint_for  # not before a call has failed

    definition = call.definition
    return "" if definition is None else hint_for(definition, call.request)
