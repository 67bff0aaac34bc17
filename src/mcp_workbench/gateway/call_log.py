"""The call log (`--log-calls`): one JSON line per call, refused calls included.

A line says who called what, how it ended, how long it took and how large the answer was. It has no
arguments and no results. docs/call-log.md describes the fields and the outcomes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.gateway.arguments import has_failed, may_be_error
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Cancelled,
    Completed,
    Failed,
    Interceptor,
    Rejected,
)
from mcp_workbench.protocol.translation import asks_for_input
from mcp_workbench.schema.document import json_text

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call

log = logging.getLogger(__name__)

# The outcome in a line: one of these, or the code of the error for which there is no answer.
OutcomeWord = Literal[
    "ok", "tool_error", "server_error", "invalid_request", "input_required", "cancelled"
]
LONGEST_NAME = 256  # characters
LOCAL = "local"  # the principal of a host that needs no token
_HEAD = 64  # bytes of a result; `input_required` results of ours say so at the very start

_Ended = tuple[float, float, "Call", CallOutcome]  # the time of day, and of the monotonic clock


class LogUnusable(WorkbenchError):
    """The call log can't be opened."""

    code = "log_unusable"


class CallLog(Interceptor):
    """Appends to a file, whole lines with one write, so that several processes may share it.

    A line is written after the answer has been sent: the log delays no answer.
    """

    observes_only = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = _open(path)
        self._is_failing = False
        self._is_torn = False  # the last line is incomplete: the next one needs a newline before it
        self._ended: list[_Ended] = []  # calls without a line so far

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._write)
        self._ended.append((time.time(), time.monotonic(), call, outcome))
        return outcome

    def close(self) -> None:
        """Write the remaining lines. The log belongs to one workbench, and closes with it."""
        self._write()
        os.close(self._fd)

    def _write(self) -> None:
        ended, self._ended = self._ended, []
        if not ended:
            return
        lines = b"".join([b"\n" if self._is_torn else b"", *(_line(*one) for one in ended)])
        try:
            written = os.write(self._fd, lines)
            self._is_torn = written < len(lines)
            reason = "no space left for a whole line" if self._is_torn else ""
        except OSError as error:
            reason = error.strerror or str(error)
        if reason and not self._is_failing:  # warn once, until it works again
            log.warning("calls can't be logged in %s: %s", self._path, reason)
        self._is_failing = bool(reason)


def _open(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except OSError as error:
        raise LogUnusable(f"calls can't be logged in {path}: {error.strerror}") from None
    if problem := _problem(os.fstat(fd)):
        os.close(fd)
        raise LogUnusable(f"calls can't be logged in {path}: {problem}")
    return fd


def _problem(status: os.stat_result) -> str:
    """Why this file is not written to; empty if it is."""
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return "it belongs to another user, who could change it"
    return ""


def _line(now: float, end: float, call: Call, outcome: CallOutcome) -> bytes:
    request = call.request
    word, size = _summary(outcome)
    what = "tool" if request.method == TOOLS_CALL else "method"
    line = {
        "time": f"{_second(int(now))}.{int(now % 1 * 1000):03d}Z",
        "principal": call.view.principal or LOCAL,
        "host": call.host_name,
        "toolbox": _cut(request.tool.toolbox),
        "server": _cut(request.tool.server),
        what: _cut(request.tool.tool if what == "tool" else request.method),
        "outcome": word,
        "ms": round((end - call.started) * 1000, 3),
        "bytes": size,
    }
    return json_text(line).encode() + b"\n"  # `json_text` escapes control characters


def _cut(name: str) -> str:
    """Return the name, cut to LONGEST_NAME: a refused call can name anything."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


@lru_cache(2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _summary(outcome: CallOutcome) -> tuple[str, int]:
    """Return how a call ended, and how many bytes its answer has."""
    if isinstance(outcome, Failed):
        return outcome.error.code, 0
    if isinstance(outcome, Completed):
        return _completed(outcome.result), len(outcome.result)
    return _unanswered(outcome), len(outcome.error) if isinstance(outcome, Rejected) else 0


def _completed(result: msgspec.Raw | bytes) -> OutcomeWord:
    if may_be_error(result):
        return "tool_error" if has_failed(result) else "ok"
    is_question = b'"input_required"' in bytes(memoryview(result)[:_HEAD])
    return "input_required" if is_question and asks_for_input(msgspec.Raw(result)) else "ok"


def _unanswered(outcome: Rejected | Cancelled) -> OutcomeWord:
    if isinstance(outcome, Cancelled):
        return "cancelled"
    return "invalid_request" if outcome.is_ours else "server_error"
