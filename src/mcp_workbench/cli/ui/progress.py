"""A progress line on stderr: it appears late, changes in place, and is erased at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import click

from mcp_workbench.cli.ui.render import plain, shows
from mcp_workbench.timing import pause

QUIET_TIME = 0.3  # seconds until a line appears, and between two changes of it
SECOND = pause(1.0)  # between two updates while waiting
BAR = 20  # columns
NARROW = 50  # columns of a terminal that has no room for a bar
USUAL = 80  # columns if the terminal's width is unknown


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
    def waiting(self, text: str) -> Generator[None]:
        """Shows every second how long it takes, on a terminal, until the server sends progress."""
        from asyncio import get_running_loop  # already loaded here

        loop = get_running_loop()
        since = loop.time()

        def tick() -> None:
            nonlocal timer
            if self.live and not self._has_progress:
                self.show(f"{text}, {loop.time() - since:.0f} s")
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
    full = (
        round(BAR * min(share, 1)) if share > 0 else 0
    )  # a negative number or nan shows an empty bar
    filled, empty = ("━", "─") if shows("━", sys.stderr) else ("#", "-")
    return f"{filled * full}{empty * (BAR - full)} "


def progress_text(params: dict[str, Any]) -> str:
    """Returns `3/5 step 3`, as far as the server sends it."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    if amount and isinstance(total, int | float):
        amount = f"{amount}/{total:g}"
    return " ".join(filter(None, (amount, message if isinstance(message, str) else "")))
