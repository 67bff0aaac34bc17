"""What a server says on stderr, into the log: masked, cut into lines, no faster than one can read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from mcp_workbench.config.expand import secrets_of
from mcp_workbench.core.redact import Lines
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.upstream.exit_reason import printable

log = logging.getLogger(__name__)

LINES = 100  # in a window, from one server
WINDOW = 10.0  # seconds
LONGEST = 2000  # characters of a line
HELD_BYTES = 8192  # of a line that has not ended; what comes after them is left out


class Overheard:
    """One server's stderr."""

    def __init__(
        self,
        spec: ServerSpec,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = str(spec.address)
        self._clock = clock
        self._masked = Lines(secrets_of(spec, environ))
        self._held = b""
        self._since = clock()
        self._room = LINES
        self._left_out = 0
        self._is_cut = False  # what came before the next line was left out

    def heard(self, data: bytes) -> None:
        """Bytes as they come; none at the end."""
        now = self._clock()
        if now - self._since > WINDOW:
            self._tell_left_out()
            self._since, self._room = now, LINES
        if not self._room:  # a flood: nothing is looked at but its line ends
            self._leave_out(data.count(b"\n"))
            self._held = b""
            return
        if not data:
            self._tell(self._masked.cut(self._text(self._held)))
            self._held = b""
            return
        *lines, rest = (self._held + data).split(b"\n")
        self._held = rest[:HELD_BYTES]
        for line in lines[: self._room]:
            self._take(line)
        if len(lines) > self._room:
            self._leave_out(len(lines) - self._room)
        self._room = max(self._room - len(lines), 0)

    def _leave_out(self, lines: int) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._tell(self._masked.cut())
        self._left_out += lines

    def _take(self, line: bytes) -> None:
        """One line; of one that is too long, or that follows others that were left out, a part."""
        if self._is_cut or len(line) >= HELD_BYTES:
            self._is_cut = False
            self._tell(self._masked.cut(self._text(line[:HELD_BYTES])))
        else:
            self._tell(self._masked.feed(self._text(line) + "\n"))

    def _text(self, line: bytes) -> str:
        return line.decode("utf-8", "replace")

    def _tell(self, text: str) -> None:
        for line in text.split("\n"):
            if clean := printable(line.strip()):
                short = clean if len(clean) <= LONGEST else f"{clean[:LONGEST]}…"
                log.info("%s", short, extra={"server": self._address})

    def _tell_left_out(self) -> None:
        if self._left_out:
            told = f"({self._left_out} more lines were left out: more than {LINES} in {WINDOW:g} s)"
            log.info("%s", told, extra={"server": self._address})
        self._left_out = 0
