"""How a call ended, in a few words and numbers: for the audit, and for those who watch calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from mcp_workbench.core.call_request import TOOLS_CALL, CallRequest
from mcp_workbench.gateway.arguments import has_failed, may_be_error
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Cancelled,
    Completed,
    Failed,
    Relayed,
)
from mcp_workbench.protocol.translation import asks_for_input

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call

# The outcome in a word: one of these, or the code of the error for which there is no answer.
OutcomeWord = Literal[
    "ok", "tool_error", "server_error", "invalid_request", "input_required", "cancelled"
]
LOCAL = "local"  # the principal of a host that needs no token
LONGEST_NAME = 256  # characters
_HEAD = 64  # bytes of a result; `input_required` results of ours say so at the very start


class CallSummary(NamedTuple):
    """How a call ended."""

    word: str
    is_error: bool
    may_have_run: bool
    size: int  # bytes of the answer


def summary_of(call: Call, outcome: CallOutcome) -> CallSummary:
    if type(outcome) is Relayed:
        return CallSummary("ok", False, True, len(outcome.result))  # noqa: FBT003
    if isinstance(outcome, Completed):
        word = _completed(outcome.result, modern=call.request.modern_host)
        return CallSummary(word, word == "tool_error", True, len(outcome.result))  # noqa: FBT003
    if isinstance(outcome, Failed):
        return CallSummary(outcome.error.code, True, outcome.error.may_have_run, 0)  # noqa: FBT003
    if isinstance(outcome, Cancelled):
        return CallSummary("cancelled", False, call.sent > 0, 0)  # noqa: FBT003
    word = "invalid_request" if outcome.is_ours else "server_error"
    return CallSummary(word, True, not outcome.is_ours, len(outcome.error))  # noqa: FBT003


def _completed(result: msgspec.Raw | bytes, *, modern: bool) -> OutcomeWord:
    if may_be_error(result):
        return "tool_error" if has_failed(result) else "ok"
    if not modern or bytes(memoryview(result)[:_HEAD]).find(b'"input_required"') < 0:
        return "ok"
    return "input_required" if asks_for_input(msgspec.Raw(result)) else "ok"


def arguments_of(request: CallRequest) -> bytes:
    """Return the arguments of a tool, or what another method was given."""
    if request.method != TOOLS_CALL:
        return bytes(request.body)
    return bytes(request.params.get("arguments", b""))
