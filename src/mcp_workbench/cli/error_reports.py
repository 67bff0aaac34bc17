"""Errors of commands: their report on stderr, and `explain`, which explains their codes.

A report of a problem in a file shows the line. Any value in a configuration may be a secret, so that
only keys, and values that can't hold one, are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from mcp_workbench.cli.settings import (
    DONE,
    FAILED,
    UNREACHABLE,
    USAGE,
    Settings,
    global_options,
    switched_on,
)
from mcp_workbench.cli.terminal import nearby, plain, say, say_json
from mcp_workbench.config.file_access import read_plain
from mcp_workbench.config.load import MOST_BYTES
from mcp_workbench.core.errors import (
    ConfigError,
    InvalidCall,
    NotFound,
    Problem,
    ServerUnavailable,
    WorkbenchError,
    did_you_mean,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

CALL_FAILED = "WB-CALL-201"
EXCERPTS = 100  # problems whose line is shown; more of them are only listed
WIDEST = 76  # characters of a line above a caret
_LONGEST = 10_000  # characters; a longer line is not shown
TOPICS = {"migration": "from earlier names and from other workbenches to this one"}
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
    "denied": "WB-CALL-204",
    "script_failed": "WB-CALL-205",
    "script_limit": "WB-CALL-206",
    "scripts_unavailable": "WB-CALL-207",
    "lock_unusable": "WB-LOCK-001",
    "quarantined": "WB-LOCK-002",
    "not_approved": "WB-LOCK-004",
    "tour_failed": "WB-TOUR-401",
    "file_changed": "WB-HOST-502",
    "needs_yes": "WB-HOST-503",
    "own_command_failed": "WB-HOST-504",
    "unknown_host": "WB-HOST-506",
    "nothing_to_undo": "WB-HOST-507",
    "not_written": "WB-HOST-508",
    "no_config": "WB-HOST-509",
    "server_exists": "WB-HOST-516",
    "config_exists": "WB-HOST-517",
    "registry_failed": "WB-HOST-518",
    "bad_name": "WB-CONF-013",
    "daemon_failed": "WB-UP-501",
    "port_refused": "WB-CLI-005",
    "engine_away": "WB-CONN-107",
    "cluster_refused": "WB-CONN-108",
    "needs_login": "WB-AUTH-012",
}
_LISTED = "mcp-workbench tools lists what there is"
_HINTS = {"unknown_toolbox": _LISTED, "unknown_server": _LISTED, "unknown_tool": _LISTED}
_STYLES: dict[str, str] = {"error": "red", "warning": "yellow"}
# A string, closed or not, that is a key if a colon follows; a bare word; or what is between them.
_PIECE = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*"?)(?P<key>(?=\s*:))?|(?P<word>[^\s,:\[\]{}"]+)|[\s,:\[\]{}]'
)
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?=:-|\})")
_HARMLESS_WORD = re.compile(r"true|false|null|-?\d{1,6}(\.\d{1,3})?")
_HARMLESS_KEY = re.compile(
    r"\.(type|transport|description|era|scope|toolFilters(\[\d+\])?)$|^toolMode$"
)
_BLANKS = str.maketrans("\t\r", "  ")  # each one column wide; some files end lines with CR alone


class ErrorReport(msgspec.Struct, frozen=True):
    """An error: what failed, where, why, and the fix. The JSON form is its fields."""

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    cause: tuple[str, ...] = ()
    fix: str = ""


def report(error: WorkbenchError, argv: list[str]) -> int:
    """Reports an error; returns the exit status."""
    if isinstance(error, ConfigError):
        _print(_of_config(error), argv, (*error.problems, *error.warnings))
    else:
        code = error.code if error.code.startswith("WB-") else _CODES.get(error.code, CALL_FAILED)
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
    return msgspec.structs.replace(error_report(first, error.file), cause=beside)


def _print(error: ErrorReport, argv: list[str], problems: tuple[Problem, ...] = ()) -> None:
    if "--json" in argv or switched_on("JSON"):
        say_json(error, err=True)
        return
    settings = Settings()
    settings.no_color = "--no-color" in argv or switched_on("NO_COLOR")
    text = format_problems(problems, error.file) if problems else format_error(error)
    say(text, err=True, color=settings.color)


# Text of a report


def format_problems(problems: tuple[Problem, ...], file: str) -> str:
    """Returns every problem of a file, each with its place."""
    source = source_of(file) if any(p.line for p in problems) else []
    shown = [format_error(error_report(p, file), p.severity, source) for p in problems[:EXCERPTS]]
    return "\n".join(
        shown + [format_error(error_report(p, file), p.severity) for p in problems[EXCERPTS:]]
    )


def error_report(problem: Problem, file: str) -> ErrorReport:
    return ErrorReport(
        code=problem.code,
        message=problem.message,
        file=file,
        line=problem.line,
        column=problem.column,
        path=problem.path,
        fix=problem.fix,
    )


def format_error(report: ErrorReport, kind: str = "error", source: Sequence[str] = ()) -> str:
    """Returns the text of an error for people."""
    first, *more = plain(report.message).split("\n")
    lines = [f"{click.style(kind, fg=_STYLES[kind], bold=True)}: {first}"]
    lines += [f"  {line}" for line in more]
    file = nearby(report.file)
    place = f"{file}:{report.line}:{report.column}" if report.line else file
    where = "   ".join(filter(None, (place, report.path)))
    lines += [f"  --> {plain(where)}"] if where else []
    lines += _pointed(report, source)
    lines += [f"  cause: {plain(cause)}" for cause in report.cause]
    lines += [_fix(plain(report.fix))] if report.fix else []
    lines += [click.style(f"  {report.code}", dim=True)] if report.code else []
    return "\n".join(lines)


def _fix(fix: str) -> str:
    return f"  {fix}" if fix.startswith("Did you mean") else f"  fix: {fix}"


def _pointed(report: ErrorReport, source: Sequence[str]) -> list[str]:
    if not 1 <= report.line <= len(source) or len(source[report.line - 1]) > _LONGEST:
        return []
    shown = excerpt(source[report.line - 1], report.column, report.path)
    caret = click.style("^" * shown.width, fg="red", bold=True)
    return [f"{report.line:5} | {plain(shown.text)}", f"      | {' ' * shown.offset}{caret}"]


def source_of(file: str) -> list[str]:
    """Returns the lines of a file; none if it can't be read again, such as a pipe."""
    try:
        raw = read_plain(file, MOST_BYTES)
    except (OSError, ValueError):
        return []
    return raw.decode("utf-8-sig", "replace").split("\n")


class Excerpt(NamedTuple):
    """A line as it may be shown, and the place of the problem in it."""

    text: str
    offset: int
    width: int


def excerpt(line: str, column: int, path: str) -> Excerpt:
    """Returns what may be shown of a line: keys, not values, because any value may be a secret.

    The exception is the value that the problem is about, where its key never holds a secret.
    """
    shown, offset, width = "", len(line), 1
    for piece, masked in _pieces(line, column, path):
        if piece.start() < column <= piece.end():
            offset, width = len(shown), len(masked)
        shown += masked
    first = max(min(len(shown) - len(shown.lstrip()), offset), offset + width + 1 - WIDEST)
    text = shown[first:].rstrip()
    cut = text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
    return Excerpt(cut, offset - first, min(width, WIDEST))


def _pieces(line: str, column: int, path: str) -> Iterator[tuple[re.Match[str], str]]:
    meant = False  # the value at the column, or the value of the key there
    for piece in _PIECE.finditer(line.translate(_BLANKS)):
        meant = meant or piece.start() < column <= piece.end()
        shows = meant and piece["string"] and piece["key"] is None and _HARMLESS_KEY.search(path)
        meant = meant and not shows and piece.group() != ","
        yield piece, piece.group() if shows else _masked(piece)


def _masked(piece: re.Match[str]) -> str:
    whole = piece.group()
    if piece["string"] and piece["key"] is None:
        variables = "".join(f"{name}}}…" for name in _VARIABLE.findall(whole))
        return f'"…{variables}"'
    if piece["word"] and not _HARMLESS_WORD.fullmatch(whole):
        return "…"
    return whole


# The command


def _complete(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem | str]:
    from mcp_workbench.core.error_codes import CODES  # a large table: only for this command

    return [name for name in (*TOPICS, *CODES) if name.lower().startswith(typed.lower())]


@click.command()
@click.argument("topic", metavar="TOPIC|CODE", default="", shell_complete=_complete)
@global_options
@click.pass_obj
def explain(settings: Settings, topic: str) -> int:
    """Explain an error code or a topic; without one, list them all.

    \b
    Examples:
      mcp-workbench explain
      mcp-workbench explain WB-CONF-021
      mcp-workbench explain migration
    """
    if not topic:
        _list(settings)
    elif topic.lower() in TOPICS:
        text = document(topic.lower())
        say_json({"topic": topic.lower(), "text": text}) if settings.json else say(text.rstrip())
    else:
        _code(settings, topic)
    return DONE


def _list(settings: Settings) -> None:
    from mcp_workbench.core.error_codes import CODES

    if settings.json:
        say_json({"topics": TOPICS, "codes": {code: row.title for code, row in CODES.items()}})
        return
    for name, about in [*TOPICS.items(), *((code, row.title) for code, row in CODES.items())]:
        say(f"{name:12}  {about}")


def _code(settings: Settings, topic: str) -> None:
    from mcp_workbench.core.error_codes import CODES

    code = topic.upper()
    row = CODES.get(code)
    if row is None:
        hint = did_you_mean(code, list(CODES)) or did_you_mean(code.lower(), list(TOPICS))
        raise InvalidCall(
            f"nothing is known about '{topic}'",
            hint=hint or "mcp-workbench explain lists all of it",
        )
    if settings.json:
        say_json({"code": code} | {n: getattr(row, n) for n in ("title", "meaning", "remedy")})
    else:
        say(f"{code}: {row.title}\n\n{row.meaning}\n\nWhat to do: {row.remedy}")


def document(name: str) -> str:
    """Returns a document from the installed package, or from the source tree."""
    from importlib.resources import files  # slow to load

    shipped = files("mcp_workbench").joinpath("docs", f"{name}.md")
    if shipped.is_file():
        return shipped.read_text("utf-8")
    return (Path(__file__).parents[3] / "docs" / f"{name}.md").read_text("utf-8")
