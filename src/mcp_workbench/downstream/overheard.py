"""What a server says on stderr, line by line into the log: masked, and not faster than one can read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.downstream.last_words import masked

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
        self._spec = spec
        self._environ = environ
        self._clock = clock
        self._held = b""
        self._since = clock()
        self._room = LINES
        self._left_out = 0

    def heard(self, data: bytes) -> None:
        now = self._clock()
        if now - self._since > WINDOW:
            self._tell_left_out()
            self._since, self._room = now, LINES
        if not self._room:  # a flood: nothing is looked at but its line ends
            self._left_out += data.count(b"\n")
            self._held = b""
            return
        *lines, rest = (self._held + data).split(b"\n")
        self._held = rest[:HELD_BYTES]
        for line in lines[: self._room]:
            self._tell(line[:HELD_BYTES])
        self._left_out += max(len(lines) - self._room, 0)
        self._room = max(self._room - len(lines), 0)

    def _tell(self, line: bytes) -> None:
        text = masked(line.decode("utf-8", "replace").strip(), self._spec, self._environ)
        if text:
            short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
            log.info("%s", short, extra={"server": str(self._spec.address)})

    def _tell_left_out(self) -> None:
        if self._left_out:
            told = f"({self._left_out} more lines were left out: more than {LINES} in {WINDOW:g} s)"
            log.info("%s", told, extra={"server": str(self._spec.address)})
        self._left_out = 0
