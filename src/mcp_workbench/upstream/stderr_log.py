"""A server's stderr in our log: split into lines, secrets masked, at a limited rate."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from mcp_workbench.config.expand import secrets_of
from mcp_workbench.core.redact import LineRedactor
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.upstream.exit_reason import printable

log = logging.getLogger(__name__)

LINES = 100  # in a window, from one server
WINDOW = 10.0  # seconds
LONGEST = 2000  # characters of a line
HELD_BYTES = 8192  # of an incomplete line; the rest of it is dropped


class StderrLog:
    """One server's stderr."""

    def __init__(
        self,
        spec: ServerSpec,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = str(spec.address)
        self._clock = clock
        self._masked = LineRedactor(secrets_of(spec, environ))
        self._held = b""
        self._since = clock()
        self._budget = LINES
        self._dropped = 0
        self._is_cut = False  # the text before the next line was dropped

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive; empty at the end."""
        now = self._clock()
        if now - self._since > WINDOW:
            self._log_dropped()
            self._since, self._budget = now, LINES
        if not self._budget:  # a flood: only lines are counted
            self._drop(data.count(b"\n"))
            self._held = b""
            return
        if not data:
            self._write(self._masked.cut(self._text(self._held)))
            self._held = b""
            return
        *lines, rest = (self._held + data).split(b"\n")
        self._held = rest[:HELD_BYTES]
        for line in lines[: self._budget]:
            self._take(line)
        if len(lines) > self._budget:
            self._drop(len(lines) - self._budget)
        self._budget = max(self._budget - len(lines), 0)

    def _drop(self, lines: int) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._write(self._masked.cut())
        self._dropped += lines

    def _take(self, line: bytes) -> None:
        """One line; it may be incomplete if it is too long or follows dropped ones."""
        if self._is_cut or len(line) >= HELD_BYTES:
            self._is_cut = False
            self._write(self._masked.cut(self._text(line[:HELD_BYTES])))
        else:
            self._write(self._masked.feed(self._text(line) + "\n"))

    def _text(self, line: bytes) -> str:
        return line.decode("utf-8", "replace")

    def _write(self, text: str) -> None:
        for line in text.split("\n"):
            if clean := printable(line.strip()):
                short = clean if len(clean) <= LONGEST else f"{clean[:LONGEST]}…"
                log.info("%s", short, extra={"server": self._address})

    def _log_dropped(self) -> None:
        if self._dropped:
            line = f"({self._dropped} more lines were left out: more than {LINES} in {WINDOW:g} s)"
            log.info("%s", line, extra={"server": self._address})
        self._dropped = 0
