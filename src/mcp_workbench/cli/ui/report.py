"""Reports errors: as text for people, as one line of JSON for programs."""

from __future__ import annotations

import click
import msgspec

from mcp_workbench.cli.settings import FAILED, UNREACHABLE, USAGE, Settings, switched_on
from mcp_workbench.cli.ui.render import (
    ErrorReport,
    format_error,
    of_problem,
    say,
    say_json,
    source_of,
)
from mcp_workbench.core.errors import (
    ConfigError,
    InvalidCall,
    NotFound,
    Problem,
    ServerUnavailable,
    WorkbenchError,
)

_STATUS: tuple[tuple[type[WorkbenchError], int], ...] = (
    (ConfigError, USAGE),
    (InvalidCall, USAGE),
    (NotFound, USAGE),
    (ServerUnavailable, UNREACHABLE),
)
_CODES = {
    "invalid_parameters": "WB-CLI-001",
    "unknown_toolbox": "WB-CLI-002",
    "unknown_server": "WB-CLI-003",
    "unknown_tool": "WB-CLI-004",
    "connect_failed": "WB-CONN-101",
    "server_error": "WB-CALL-202",
    "draining": "WB-CALL-203",
    "tour_failed": "WB-TOUR-401",
    "file_changed": "WB-HOST-502",
    "needs_yes": "WB-HOST-503",
    "own_command_failed": "WB-HOST-504",
    "unknown_host": "WB-HOST-506",
    "nothing_to_undo": "WB-HOST-507",
    "not_written": "WB-HOST-508",
    "no_config": "WB-HOST-509",
    "bad_name": "WB-CONF-013",
    "daemon_failed": "WB-UP-501",
    "port_refused": "WB-CLI-005",
}
_LISTED = "mcp-workbench tools lists what there is"
_HINTS = {"unknown_toolbox": _LISTED, "unknown_server": _LISTED, "unknown_tool": _LISTED}
CALL_FAILED = "WB-CALL-201"
EXCERPTS = 100  # problems whose line is shown; more of them are only listed


def report(error: WorkbenchError, argv: list[str]) -> int:
    """Reports an error; returns the exit status."""
    if isinstance(error, ConfigError):
        _print(_of_config(error), argv, (*error.problems, *error.warnings))
    else:
        code = _CODES.get(error.code, CALL_FAILED)
        _print(ErrorReport(code, error.message, fix=error.hint or _HINTS.get(error.code, "")), argv)
    return next((status for kind, status in _STATUS if isinstance(error, kind)), FAILED)


def report_usage(error: click.ClickException, argv: list[str]) -> int:
    """Reports an error of the command line."""
    text = error.format_message().replace(". (", " (").removesuffix(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if isinstance(context, click.Context) else "mcp-workbench"
    message = text[:1].lower() + text[1:]
    _print(ErrorReport("WB-CLI-001", message, fix=f"{command} --help"), argv)
    return USAGE


def report_system(error: OSError, argv: list[str]) -> int:
    """Reports an error of the operating system."""
    what = error.strerror or str(error)
    where = f": {error.filename}" if error.filename else ""
    _print(ErrorReport("WB-CLI-005", f"the system refused: {what}{where}"), argv)
    return FAILED


def _of_config(error: ConfigError) -> ErrorReport:
    """Returns the error; of a file with several problems, the first one."""
    first, *others = error.problems
    beside = tuple(f"{p.path}: {p.message}" if p.path else p.message for p in others)
    return msgspec.structs.replace(of_problem(first, error.file), cause=beside)


def _print(trouble: ErrorReport, argv: list[str], problems: tuple[Problem, ...] = ()) -> None:
    if "--json" in argv or switched_on("JSON"):
        say_json(trouble, err=True)
        return
    settings = Settings()
    settings.no_color = "--no-color" in argv or switched_on("NO_COLOR")
    text = format_problems(problems, trouble.file) if problems else format_error(trouble)
    say(text, err=True, color=settings.color)


def format_problems(problems: tuple[Problem, ...], file: str) -> str:
    """Returns every problem of a file, each with its place."""
    source = source_of(file) if any(p.line for p in problems) else []
    shown = [format_error(of_problem(p, file), p.severity, source) for p in problems[:EXCERPTS]]
    return "\n".join(
        shown + [format_error(of_problem(p, file), p.severity) for p in problems[EXCERPTS:]]
    )
