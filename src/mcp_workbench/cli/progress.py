"""What is going on, on stderr: a line that comes late, changes in place, and leaves no trace."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from mcp_workbench.cli.render import plain

PATIENCE = 0.3  # seconds; what ends sooner needs no line, and no line changes faster


class ProgressLine:
    """One line for one piece of work. Off a terminal each change is a line of its own."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self.live = sys.stderr.isatty()
        self._due = time.monotonic() + PATIENCE
        self._shown = False

    def show(self, text: str) -> None:
        if not self._wanted or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PATIENCE
        self._shown = True
        columns = 78  # a line that wraps can't be erased
        self._write(f"\r\x1b[2K{plain(text)[:columns]}" if self.live else f"{plain(text)}\n")

    def clear(self) -> None:
        if self._shown and self.live:
            self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        click.echo(text, err=True, nl=False, color=self.live or None)


def progress_text(params: dict[str, Any]) -> str:
    """`3/5 step 3`, as far as the server says it."""
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    amount = f"{done:g}" if isinstance(done, int | float) else ""
    if amount and isinstance(total, int | float):
        amount = f"{amount}/{total:g}"
    return " ".join(filter(None, (amount, message if isinstance(message, str) else "")))
