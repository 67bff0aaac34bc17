"""Errors, each with the sentence of the contract."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from mcp_workbench.core.spec import ServerAddress, ToolIdentifier

MIGRATION = "mcp-workbench explain migration"
LONGEST_NAME = 64  # characters of a name that gets suggestions; nobody mistypes a longer one
MOST_NAMES = 4000  # that a mistyped name is compared with
NEAREST = 40  # of them that are compared closely, which takes time
LONGEST_SHOWN = 1000  # characters of a name in a message


class Problem(msgspec.Struct, frozen=True):
    """One error or warning about a configuration file."""

    path: str  # JSON path, such as `toolboxes.dev.mcpServers.fs`; empty for the file itself
    message: str
    fix: str = ""
    code: str = ""
    line: int = 0  # from 1; 0: no place
    column: int = 0
    severity: Literal["error", "warning"] = "error"
    count: int = 1  # problems that it stands for: of very many, the last counts the rest


class WorkbenchError(Exception):
    """A call failed. `str()` is the contract's text; `hint` says what to do next."""

    code = "internal"
    retry_after: float | None = None  # seconds to wait before a retry

    def __init__(self, message: str, *, hint: str = "", may_have_run: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.may_have_run = may_have_run


class ConfigError(WorkbenchError):
    """The configuration can't be used; lists every problem."""

    code = "invalid_config"

    def __init__(
        self, file: str, problems: tuple[Problem, ...], warnings: tuple[Problem, ...] = ()
    ) -> None:
        self.file = file
        self.problems = problems
        self.warnings = warnings  # shown beside the problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = [f"{file} has {count}", *map(_line, problems)]
        super().__init__("\n".join(lines))


def _line(problem: Problem) -> str:
    place = f":{problem.line}:{problem.column} " if problem.line else ""
    path = f"{problem.path}: " if problem.path else ""
    fix = f" (fix: {problem.fix})" if problem.fix else ""
    return f"  {place}{path}{problem.message}{fix}"


class NotFound(WorkbenchError):
    """Absent, hidden or not granted: the three look alike."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class InvalidCall(WorkbenchError):
    """The call itself is wrong; the message lists every problem."""

    code = "invalid_parameters"


class ServerUnavailable(WorkbenchError):
    """The server can't be reached, was lost, or is too busy."""

    def __init__(
        self, code: str, message: str, *, reason: str, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class CallFailed(WorkbenchError):
    """The call was sent and has no result: it timed out, or its server died."""

    def __init__(
        self,
        code: str,
        tool: ToolIdentifier,
        reason: str,
        *,
        may_have_run: bool,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"[{tool}] Error: {reason}", may_have_run=may_have_run)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class Quarantined(CallFailed):
    """The lock file does not let the definition through. No text of it is in here."""

    code = "quarantined"

    def __init__(self, tool: ToolIdentifier, reason: str, state: str, *, hint: str) -> None:
        super().__init__(self.code, tool, f"quarantined: {reason}", may_have_run=False)
        self.state = state
        self.hint = hint


class SecretUnavailable(WorkbenchError):
    """The value of a secret can't be read or kept. Neither text holds any part of it."""

    def __init__(self, code: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ServerError(WorkbenchError):
    """The server answered with a JSON-RPC error, which is passed on unchanged."""

    code = "server_error"

    def __init__(self, number: int, message: str, error: bytes) -> None:
        super().__init__(message)
        self.number = number
        self.error = error  # the whole error object as received


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Returns a hint with the nearest known name, or nothing. The work is bounded for any names."""
    if len(wrong) > LONGEST_NAME:
        return ""
    names = [name for name in islice(known, MOST_NAMES) if _is_as_long(name, wrong)]
    if len(names) > NEAREST:
        pairs = _pairs(wrong)
        names = nlargest(NEAREST, names, key=lambda name: len(pairs & _pairs(name)))
    from difflib import get_close_matches  # not needed at start-up

    near = get_close_matches(wrong, names, n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'?" if near else ""


def _is_as_long(name: str, wrong: str) -> bool:
    """Are the lengths close enough for a match?"""
    shorter, longer = sorted((len(name), len(wrong)))
    return longer <= LONGEST_NAME and 7 * shorter >= 3 * longer  # follows from `cutoff`


def _pairs(name: str) -> set[str]:
    return {name[at : at + 2] for at in range(len(name) - 1)}


def shown_name(name: str) -> str:
    """Returns a name that somebody sent, cut to a length that fits a message."""
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"


def no_toolbox(toolbox: str, known: list[str]) -> NotFound:
    return NotFound(
        "unknown_toolbox",
        f"Toolbox '{shown_name(toolbox)}' not found",
        hint=did_you_mean(toolbox, known),
    )


def no_server(server: str, toolbox: str, known: list[str]) -> NotFound:
    return NotFound(
        "unknown_server",
        f"Server '{shown_name(server)}' not found in toolbox '{shown_name(toolbox)}'",
        hint=did_you_mean(server, known),
    )


def no_server_anywhere(server: str, known: list[str]) -> NotFound:
    message = f"Server '{shown_name(server)}' not found in any toolbox"
    return NotFound("unknown_server", message, hint=did_you_mean(server, known))


def no_tool(tool: ToolIdentifier, known: list[str]) -> NotFound:
    return NotFound(
        "unknown_tool",
        f"Tool '{shown_name(tool.tool)}' not found in server '{tool.server}' (toolbox '{tool.toolbox}')",
        hint=did_you_mean(tool.tool, known),
    )


def not_connected(
    server: str,
    toolbox: str,
    reason: str,
    *,
    code: str = "connect_failed",
    retry_after: float | None = None,
) -> ServerUnavailable:
    return ServerUnavailable(
        code,
        f"Failed to connect to server '{server}' in toolbox '{toolbox}': {reason}",
        reason=reason,
        retry_after=retry_after,
    )


def quarantined(address: ServerAddress, reason: str) -> ServerUnavailable:
    """The error for a server that the lock file does not let start."""
    return not_connected(address.server, address.toolbox, reason, code="quarantined")


def empty_component(field: str) -> str:
    return f"Invalid tool identifier: {field} cannot be empty"
