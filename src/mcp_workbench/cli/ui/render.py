"""How errors, tables and data are printed: data on stdout, messages on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from mcp_workbench.config.file_access import read_plain
from mcp_workbench.config.load import MOST_BYTES
from mcp_workbench.core.errors import Problem
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.schema.document import json_text

_STYLES: dict[str, str] = {"error": "red", "warning": "yellow"}
_GLYPHS = {
    "good": ("✔", "ok", "green"),
    "doubtful": ("!", "warn", "yellow"),
    "bad": ("✘", "fail", "red"),
}
_LONGEST = 10_000  # characters; a longer line is not shown
_PLAIN = {"≈": "~", "…": "...", "·": "-", "→": "->", "←": "<-", "│": "|", "─": "-"}
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
WIDEST = 76  # characters of a line above a caret


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


def of_problem(problem: Problem, file: str) -> ErrorReport:
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


def nearby(file: str) -> str:
    """Returns the path, relative if it is below the working directory, safe for a terminal."""
    try:
        below = Path(file).relative_to(Path.cwd())
    except (ValueError, FileNotFoundError):  # it is elsewhere, or the working directory is gone
        return plain(file)
    return plain(str(below))


def plain(text: str) -> str:
    """Returns the text without control characters: servers and files are not trusted."""
    if text.isprintable():
        return text
    unseen = {sign for sign in set(text) if not (sign in "\n\t" or sign.isprintable())}
    return text.translate({ord(sign): repr(sign)[1:-1] for sign in unseen})


def glyph(kind: str) -> str:
    """Returns a coloured mark: a sign if the terminal can show it, else a word."""
    sign, word, color = _GLYPHS[kind]
    return click.style(sign if shows(sign, sys.stdout) else word, fg=color)


def table(rows: Iterable[Sequence[str]], right: frozenset[int] = frozenset()) -> list[str]:
    """Returns lines with aligned columns; those in `right` are aligned to the right."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(row: list[str]) -> str:
        aligned = (
            c.rjust(w) if i in right else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    return [line(row) for row in cells]


def hanging(text: str, under: str) -> str:
    """Wraps a long line to the width of the terminal, each part indented by `under`."""
    if not sys.stdout.isatty():
        return f"{under}{text}"  # not a terminal: the line stays whole for a search
    from shutil import get_terminal_size
    from textwrap import wrap

    room = max(get_terminal_size().columns - len(under), 40)
    parts = wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"{under}{part}" for part in parts)


def say(text: str, *, color: bool | None = None, err: bool = False) -> None:
    """Prints for people, in characters that the stream can encode."""
    stream = sys.stderr if err else sys.stdout
    for sign, instead in _PLAIN.items():
        if sign in text and not shows(sign, stream):
            text = text.replace(sign, instead)
    click.echo(text, err=err, color=color)


def shows(sign: str, stream: Any) -> bool:
    """Can this stream encode the character?"""
    try:
        sign.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def say_json(value: Any, *, pretty: bool = False, err: bool = False) -> None:
    """Prints data: always UTF-8, on one line unless `pretty`.

    Signs that can't be seen are escaped, which means the same: a terminal might obey them.
    """
    data = json_text(value).encode()
    click.echo(msgspec.json.format(data, indent=2) if pretty else data, err=err)


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


def counted(snapshot: Snapshot) -> str:
    """Returns `2 toolboxes, 3 servers`."""
    boxes, servers = (
        len(snapshot.toolboxes),
        sum(len(t.servers) for t in snapshot.toolboxes.values()),
    )
    return f"{boxes} toolbox{'' if boxes == 1 else 'es'}, {servers} server{'' if servers == 1 else 's'}"
