"""What only the servers themselves can show to be doubtful in a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mcp_workbench.core.errors import Problem
from mcp_workbench.core.names import generate_tool_name
from mcp_workbench.core.spec import Snapshot

if TYPE_CHECKING:
    from mcp_workbench.core.reports import ServerReport

# The longest flat name that each host takes under an entry called `workbench`, and what it does to
# longer ones (November 2026).
_LONGEST = (
    (48, "Claude Code may refuse it"),
    (49, "Gemini CLI cuts it"),
    (50, "Cursor drops the tool"),
)
_LOG_ELSEWHERE = "let the server write its log to stderr; calls work all the same"
_SHORTER = 'shorten the names of toolbox or server, or set "toolMode": "proxy"'


def doubts(snapshot: Snapshot, reports: Iterable[ServerReport]) -> Iterator[Problem]:
    """Filters that match nothing, names that hosts cut, tools left out, lines that say nothing."""
    for report in reports:
        place = snapshot.toolbox(report.address.toolbox).server(report.address.server).place
        for pattern in report.idle_filters:
            message = f"toolFilters: '{pattern}' matches none of the tools of {report.address}"
            message += " (known from the cache)" if report.age is not None else ""
            fix = f"mcp-workbench tools {report.address} lists those that are shown"
            yield _warning(f"{place}.toolFilters", message, fix, "WB-TOOL-301")
        for complaint in report.complaints:
            yield _warning(place, f"{report.address}: {complaint}", "", "WB-TOOL-303")
        if report.skipped:
            yield _warning(place, _no_messages(report), _LOG_ELSEWHERE, "WB-CONN-102")
        if snapshot.tool_mode == "dynamic":
            yield from _long_names(report, place)


def _no_messages(report: ServerReport) -> str:
    lines = "1 line" if report.skipped == 1 else f"{report.skipped} lines"
    last = report.last_skipped.strip()
    return f"{report.address}: {lines} on its stdout held no message; the last one: {last}"


def _long_names(report: ServerReport, place: str) -> Iterator[Problem]:
    for tool in report.tools:
        name = generate_tool_name(report.address.toolbox, report.address.server, tool.name)
        sufferers = [effect for longest, effect in _LONGEST if len(name) > longest]
        if sufferers:
            message = f"the name '{name}' has {len(name)} characters: {', '.join(sufferers)}"
            yield _warning(place, message, _SHORTER, "WB-TOOL-302")


def _warning(path: str, message: str, fix: str, code: str) -> Problem:
    return Problem(path, message, fix, code, severity="warning")
