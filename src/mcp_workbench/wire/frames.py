"""Bytes in, lines out: linear in time, bounded in memory."""

from __future__ import annotations

from collections.abc import Sequence

SMALL = (
    512  # bytes; smaller chunks share a buffer, or a server that drips would cost us twenty-fold
)
HEAD = 4096  # bytes kept of a line that is too long: enough to find out what it was


class LineFramer:
    """Cuts a stream into lines. Chunks of an unfinished line are kept apart and joined once."""

    __slots__ = ("_held", "_limit", "_size", "_skipping", "overflow")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[bytes | bytearray] = []
        self._size = 0
        self._skipping = False  # inside a line that is too long
        self.overflow: bytes | None = None  # the start of a line that was too long

    def feed(self, data: bytes) -> Sequence[bytes]:
        """The lines that `data` completes, without their ends; blank ones are left out.

        A carriage return becomes a space: in JSON it stands only between tokens, and some readers
        would take it for the end of a line.
        """
        if (
            self._size or self._skipping or len(data) > self._limit or data.find(b"\r") >= 0
        ):  # as `envelope.has`
            return self._feed_carefully(data)
        line, end, rest = data.partition(b"\n")
        if end and not rest:  # one whole line, or a blank one
            return () if not line or line.isspace() else (line,)
        lines = data.split(b"\n")
        self._hold(lines.pop())
        return [line for line in lines if line and not line.isspace()]

    def _feed_carefully(self, data: bytes) -> Sequence[bytes]:
        *whole, rest = data.split(b"\n")
        lines: list[bytes] = []
        for part in whole:
            self._hold(part)
            line = self._finished().replace(b"\r", b" ")
            if line and not line.isspace():
                lines.append(line)
        self._hold(rest)
        return lines

    def take_overflow(self) -> bytes | None:
        """The start of a line that went past the cap since this was last asked, if one did."""
        head, self.overflow = self.overflow, None
        return head

    def _hold(self, chunk: bytes) -> None:
        if self._skipping or not chunk:
            return
        self._keep(chunk)
        self._size += len(chunk)
        if self._size > self._limit:
            self.overflow = b"".join(part[:HEAD] for part in self._held[:HEAD])[:HEAD]
            self._held.clear()
            self._size = 0
            self._skipping = True

    def _keep(self, chunk: bytes) -> None:
        held = self._held
        if not held or len(chunk) >= SMALL:
            held.append(chunk)
        elif isinstance(last := held[-1], bytearray):
            last += chunk
        else:
            held.append(bytearray(chunk))

    def _finished(self) -> bytes:
        line = b"".join(self._held)
        self._held.clear()
        self._size = 0
        self._skipping = False
        return line
