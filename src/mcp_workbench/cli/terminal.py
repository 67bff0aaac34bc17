"""Output for people and programs: data on stdout, messages and progress on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcp_workbench.schema.document import json_text
from mcp_workbench.timing import pause

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot

_GLYPHS = {
    "good": ("✔", "ok", "green"),
    "doubtful": ("!", "warn", "yellow"),
    "bad": ("✘", "fail", "red"),
}
# Substitutes for signs that a stream can't encode.
_PLAIN = {"≈": "~", "…": "...", "·": "-", "→": "->", "←": "<-", "│": "|", "─": "-"}
QUIET_TIME = 0.3  # seconds until a line appears, and between two changes of it
SECOND = pause(1.0)  # between two updates while waiting
BAR = 20  # columns
NARROW = 50  # columns of a terminal that has no room for a bar
USUAL = 80  # columns if the terminal's width is unknown


def say(text: str, *, color: bool | None = None, err: bool = False) -> None:
    """Prints for people, in characters that the stream can encode."""
    stream = sys.stderr if err else sys.stdout
    for sign, instead in _PLAIN.items():
        if sign in text and not shows(sign, stream):
            text = text.replace(sign, instead)
    click.echo(text, err=err, color=color)


def say_json(value: Any, *, pretty: bool = False, err: bool = False) -> None:
    """Prints data: always UTF-8, on one line unless `pretty`.

    Signs that can't be seen are escaped, which means the same: a terminal might obey them.
    """
    data = json_text(value).encode()
    click.echo(msgspec.json.format(data, indent=2) if pretty else data, err=err)


# Pieces of text


def plain(text: str) -> str:
    """Returns the text without control characters: servers and files are not trusted."""
    if text.isprintable():
        return text
    unseen = {sign for sign in set(text) if not (sign in "\n\t" or sign.isprintable())}
    return text.translate({ord(sign): repr(sign)[1:-1] for sign in unseen})


def shows(sign: str, stream: Any) -> bool:
    """Can this stream encode the character?"""
    try:
        sign.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def glyph(kind: str) -> str:
    """Returns a coloured mark: a sign if the terminal can show it, else a word."""
    sign, word, color = _GLYPHS[kind]
    return click.style(sign if shows(sign, sys.stdout) else word, fg=color)


def nearby(file: str) -> str:
    """Returns the path, relative if it is below the working directory, safe for a terminal."""
    try:
        below = Path(file).relative_to(Path.cwd())
    except (ValueError, FileNotFoundError):  # it is elsewhere, or the working directory is gone
        return plain(file)
    return plain(str(below))


def counted(snapshot: Snapshot) -> str:
    """Returns `2 toolboxes, 3 servers`."""
    boxes, servers = (
        len(snapshot.toolboxes),
        sum(len(t.servers) for t in snapshot.toolboxes.values()),
    )
    return f"{boxes} toolbox{'' if boxes == 1 else 'es'}, {servers} server{'' if servers == 1 else 's'}"


def number(count: float) -> str:
    """Returns `12,345`: all numbers of all commands are written like this."""
    return f"{count:,.0f}"


def about(count: float) -> str:
    """Returns `≈ 12,345`, for an estimate."""
    return f"≈ {number(count)}"


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


def screen_width() -> int | None:
    """Returns the columns of the terminal on stdout; None if that is no terminal."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size((USUAL, 0)).columns


def cut(text: str, width: int) -> str:
    """Returns the text, cut to so many columns of a terminal: some signs take two."""
    if text.isascii() and len(text) <= width:
        return text
    from itertools import accumulate
    from unicodedata import east_asian_width

    ends = list(accumulate(2 if east_asian_width(sign) in "WF" else 1 for sign in text))
    if not ends or ends[-1] <= width:
        return text
    return text[: sum(end < width for end in ends)].rstrip() + "…"


def hanging(text: str, under: str) -> str:
    """Wraps a long line to the width of the terminal, each part indented by `under`."""
    width = screen_width()
    if width is None:
        return f"{under}{text}"  # not a terminal: the line stays whole for a search
    from textwrap import wrap

    room = max(width - len(under), 40)
    parts = wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"{under}{part}" for part in parts)


# Progress


class ProgressLine:
    """One line of progress. Without a terminal, each change is a line of its own."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self.live = sys.stderr.isatty()
        self._due = time.monotonic() + QUIET_TIME
        self._shown = False
        self._paused = False
        self._has_progress = False  # sent by the server, and better than a clock

    def show(self, text: str) -> None:
        if not self._wanted or self._paused or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + QUIET_TIME
        self._shown = True
        # A line that wraps can't be erased.
        self._write(f"\r\x1b[2K{plain(text)[: columns() - 2]}" if self.live else f"{plain(text)}\n")

    def progress(self, params: dict[str, Any]) -> None:
        """Shows a progress notification of the server."""
        self._has_progress = True
        bar = progress_bar(params) if self.live and columns() >= NARROW else ""
        self.show(f"{bar}{progress_text(params)}")

    @contextmanager
    def waiting(self, text: str | Callable[[], str]) -> Generator[None]:
        """Shows every second how long it takes, on a terminal, until the server sends progress."""
        from asyncio import get_running_loop  # already loaded here

        loop = get_running_loop()
        since = loop.time()

        def tick() -> None:
            nonlocal timer
            if self.live and not self._has_progress:
                current = text if isinstance(text, str) else text()
                self.show(f"{current}, {loop.time() - since:.0f} s")
            timer = loop.call_later(SECOND, tick)

        timer = loop.call_later(SECOND, tick)
        try:
            yield
        finally:
            timer.cancel()

    def clear(self) -> None:
        if self._shown and self.live:
            self._write("\r\x1b[2K")
            self._shown = False

    def pause(self) -> None:
        """Erases the line and stops, so that others can use the terminal."""
        self.clear()
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def _write(self, text: str) -> None:
        click.echo(text, err=True, nl=False, color=self.live or None)


def columns() -> int:
    """Returns the width of the terminal on stderr."""
    try:
        return os.get_terminal_size(2).columns or USUAL
    except OSError:
        return USUAL


def progress_bar(params: dict[str, Any]) -> str:
    """Returns a bar if the server sends a total."""
    done, total = params.get("progress"), params.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return ""
    share = done / total
    full = round(BAR * min(share, 1)) if share > 0 else 0  # negative or nan: an empty bar
    filled, empty = ("━", "─") if shows("━", sys.stderr) else ("#", "-")
    return f"{filled * full}{empty * (BAR - full)} "


def progress_text(params: dict[str, Any]) -> str:
    """Returns `3/5 step 3`, as far as the server sends it."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    if amount and isinstance(total, int | float):
        amount = f"{amount}/{total:g}"
    return " ".join(filter(None, (amount, message if isinstance(message, str) else "")))
