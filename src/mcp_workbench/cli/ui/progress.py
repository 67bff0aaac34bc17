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

PATIENCE = 0.3  # seconds; what ends sooner needs no line, and no line changes faster
SECOND = pause(1.0)  # between two words about waiting
BAR = 20  # columns
NARROW = 50  # columns of a terminal that has no room for a bar
USUAL = 80  # columns where the terminal does not say


class ProgressLine:
    """One line for one piece of work. Off a terminal each change is a line of its own."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self.live = sys.stderr.isatty()
        self._due = time.monotonic() + PATIENCE
        self._shown = False
        self._paused = False
        self._told = False  # by the server itself, which knows better than a clock

    def show(self, text: str) -> None:
        if not self._wanted or self._paused or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PATIENCE
        self._shown = True
        # A line that wraps can't be erased.
        self._write(f"\r\x1b[2K{plain(text)[: columns() - 2]}" if self.live else f"{plain(text)}\n")

    def progress(self, params: dict[str, Any]) -> None:
        """Show how far a call is, as its server tells it."""
        self._told = True
        bar = progress_bar(params) if self.live and columns() >= NARROW else ""
        self.show(f"{bar}{progress_text(params)}")

    @contextmanager
    def waiting(self, text: str) -> Generator[None]:
        """On a terminal, say every second for how long; until the server tells how far it is."""
        from asyncio import get_running_loop  # whoever waits has loaded it

        loop = get_running_loop()
        since = loop.time()

        def tick() -> None:
            nonlocal timer
            if self.live and not self._told:
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
        """Leave the terminal to somebody else."""
        self.clear()
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def _write(self, text: str) -> None:
        click.echo(text, err=True, nl=False, color=self.live or None)


def columns() -> int:
    """How wide the terminal under stderr is."""
    try:
        return os.get_terminal_size(2).columns or USUAL
    except OSError:
        return USUAL


def progress_bar(params: dict[str, Any]) -> str:
    """A bar where the server tells how much there is in all."""
    done, total = params.get("progress"), params.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return ""
    share = done / total
    full = round(BAR * min(share, 1)) if share > 0 else 0  # an odd number is no share at all
    filled, empty = ("━", "─") if shows("━", sys.stderr) else ("#", "-")
    return f"{filled * full}{empty * (BAR - full)} "


def progress_text(params: dict[str, Any]) -> str:
    """`3/5 step 3`, as far as the server says it."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    if amount and isinstance(total, int | float):
        amount = f"{amount}/{total:g}"
    return " ".join(filter(None, (amount, message if isinstance(message, str) else "")))
