"""RESP, the protocol of Valkey and Redis: commands, and a reader of replies with limits. Pure."""

from __future__ import annotations

MOST_REPLY = 16 << 20  # bytes of one reply, with all its parts
MOST_PARTS = 200_000  # values in one reply
MOST_DEPTH = 4  # of arrays in arrays
LONGEST_LINE = 1024  # of a length, a number, or a status
LONGEST_NUMBER = 20  # digits of 64 bits, and a sign
CUT = 1 << 16  # bytes that were read, before the buffer is cut


class EngineError(Exception):
    """The engine's own error reply."""

    @property
    def kind(self) -> str:
        """Returns its first word, such as WRONGTYPE."""
        return str(self).partition(" ")[0]


class BadReply(Exception):
    """What arrived is not RESP, or more than anybody asked for. The connection is of no use any more."""


def command(*parts: bytes | str | int) -> bytes:
    """Returns a command as the engine reads it."""
    out = [b"*%d\r\n" % len(parts)]
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


class _Unfinished(Exception):
    """More bytes are needed."""


class ReplyReader:
    """Reads replies from bytes as they arrive. Nothing is allocated for lengths that are only announced."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # where the next reply begins
        self._wanted = 0  # bytes without which the next reply can't be complete

    def feed(self, data: bytes) -> list[object]:
        """Returns the replies that are complete now. Raises BadReply."""
        self._data += data
        replies: list[object] = []
        while len(self._data) - self._at >= max(1, self._wanted):
            self._parts = 0
            self._end = self._at
            try:
                replies.append(self._read(0))
            except _Unfinished:
                if len(self._data) - self._at > MOST_REPLY:
                    raise BadReply("a reply is too long") from None
                break
            self._at = self._end
            self._wanted = 0
        if self._at == len(self._data) or self._at > CUT:
            del self._data[: self._at]
            self._at = 0
        return replies

    def _read(self, depth: int) -> object:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise BadReply("a reply has too many parts")
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return self._bulk(self._number(rest))
        if kind == b":":
            return self._number(rest)
        if kind == b"+":
            return rest
        if kind == b"-":
            return EngineError(rest.decode("utf-8", "replace"))
        if kind == b"*":
            return self._array(self._number(rest), depth)
        raise BadReply("a reply of an unknown kind")

    def _line(self) -> bytes:
        end = self._data.find(b"\r\n", self._end, self._end + LONGEST_LINE)
        if end < 0:
            if len(self._data) - self._end >= LONGEST_LINE:
                raise BadReply("a line is too long")
            raise _Unfinished
        line = bytes(self._data[self._end : end])
        self._end = end + 2
        return line

    def _bulk(self, size: int) -> bytes | None:
        if size == -1:
            return None
        if not 0 <= size <= MOST_REPLY:
            raise BadReply("a value is too long")
        end = self._end + size
        if len(self._data) < end + 2:
            # Arrays are read again from their beginning; this keeps that from happening at each piece.
            self._wanted = end + 2 - self._at
            raise _Unfinished
        if not self._data.startswith(b"\r\n", end):
            raise BadReply("a value has another length than announced")
        value = bytes(self._data[self._end : end])
        self._end = end + 2
        return value

    def _array(self, size: int, depth: int) -> list[object] | None:
        if size == -1:
            return None
        if depth >= MOST_DEPTH or not 0 <= size <= MOST_PARTS:
            raise BadReply("an array is too long or too deep")
        # The shortest value has three bytes (a status of none).
        if len(self._data) - self._end < 3 * size:
            self._wanted = self._end + 3 * size - self._at
            raise _Unfinished
        return [self._read(depth + 1) for _ in range(size)]

    @staticmethod
    def _number(text: bytes) -> int:
        digits = text.removeprefix(b"-")
        if not digits.isdigit() or len(text) > LONGEST_NUMBER:
            raise BadReply("a number is none")
        return int(text)
