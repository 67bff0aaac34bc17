"""Bytes in, lines out: linear in time, bounded in memory."""

from __future__ import annotations

from collections.abc import Sequence

BOM = b"\xef\xbb\xbf"


class Oversize(Exception):
    """A line grew past the cap; what was held of it is freed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message is larger than {limit} bytes")
        self.limit = limit


class LineFramer:
    """Cuts a stream into lines. Chunks of an unfinished line are kept apart and joined once."""

    __slots__ = ("_held", "_size", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: list[bytes] = []
        self._size = 0

    @property
    def unfinished(self) -> int:
        """How many bytes of a line without its end are held."""
        return self._size

    def feed(self, data: bytes) -> Sequence[bytes]:
        """The lines that `data` completes, without their ends; blank ones are left out."""
        end = data.find(b"\n")
        if end == len(data) - 1 and not self._held and 0 < end <= self.limit and b"\r" not in data:
            return (data[:-1],)  # one whole line, as most chunks are
        end = data.rfind(b"\n", end)
        if end < 0:
            self._hold(data)
            return ()
        lines = data[:end].split(b"\n")
        if self._held:
            lines[0] = b"".join((*self._held, lines[0]))
            self._held.clear()
        self._size = 0
        if end + 1 < len(data):
            self._hold(data[end + 1 :])
        if b"\r" in data:
            lines = [line.replace(b"\r", b" ") for line in lines]  # between tokens, or at the end
        self._check(lines)
        return [line for line in lines if line and not line.isspace()]

    def _hold(self, chunk: bytes) -> None:
        self._held.append(chunk)
        self._size += len(chunk)
        if self._size > self.limit:
            self._free()

    def _check(self, lines: list[bytes]) -> None:
        if any(len(line) > self.limit for line in lines):
            self._free()

    def _free(self) -> None:
        self._held.clear()
        self._size = 0
        raise Oversize(self.limit)
