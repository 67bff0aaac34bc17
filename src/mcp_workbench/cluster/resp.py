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
    """Reads replies from bytes as they arrive, each byte once. Nothing is allocated for lengths that are only announced."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # where the next value begins
        self._wanted = 0  # bytes without which the next value can't be complete
        self._open: list[
            tuple[list[object], int]
        ] = []  # arrays that are not complete, and their sizes
        self._parts = 0  # of this reply so far
        self._taken = 0  # bytes of it

    def feed(self, data: bytes) -> list[object]:
        """Returns the replies that are complete now. Raises BadReply."""
        self._data += data
        replies: list[object] = []
        while len(self._data) - self._at >= max(1, self._wanted):
            start, self._wanted = self._at, 0
            try:
                value = self._value()
            except _Unfinished:
                self._at = start
                break
            self._taken += self._at - start
            if value is not self._open:  # else an array has begun
                self._add(value, replies)
        if self._taken + len(self._data) - self._at > MOST_REPLY:
            raise BadReply("a reply is too long")
        if self._at == len(self._data) or self._at > CUT:
            del self._data[: self._at]
            self._at = 0
        return replies

    def _add(self, value: object, replies: list[object]) -> None:
        """Take a complete value: an element of an array, or a reply."""
        while self._open:
            values, size = self._open[-1]
            values.append(value)
            if len(values) < size:
                return
            value = values
            self._open.pop()
        replies.append(value)
        self._parts = self._taken = 0

    def _value(self) -> object:
        """Returns the next value; of an array with elements, the list of open ones."""
        line = self._line()
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise BadReply("a reply has too many parts")
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
            return self._array(self._number(rest))
        raise BadReply("a reply of an unknown kind")

    def _line(self) -> bytes:
        end = self._data.find(b"\r\n", self._at, self._at + LONGEST_LINE)
        if end < 0:
            if len(self._data) - self._at >= LONGEST_LINE:
                raise BadReply("a line is too long")
            raise _Unfinished
        line = bytes(self._data[self._at : end])
        self._at = end + 2
        return line

    def _bulk(self, size: int) -> bytes | None:
        if size == -1:
            return None
        if not 0 <= size <= MOST_REPLY:
            raise BadReply("a value is too long")
        end = self._at + size
        if len(self._data) < end + 2:
            self._parts -= 1  # its line is read again
            self._wanted = end + 2 - self._at
            raise _Unfinished
        if not self._data.startswith(b"\r\n", end):
            raise BadReply("a value has another length than announced")
        value = bytes(self._data[self._at : end])
        self._at = end + 2
        return value

    def _array(self, size: int) -> object:
        if size == -1:
            return None
        if len(self._open) >= MOST_DEPTH or not 0 <= size <= MOST_PARTS:
            raise BadReply("an array is too long or too deep")
        if not size:
            return []
        self._open.append(([], size))
        return self._open

    @staticmethod
    def _number(text: bytes) -> int:
        digits = text.removeprefix(b"-")
        if not digits.isdigit() or len(text) > LONGEST_NUMBER:
            raise BadReply("a number is none")
        return int(text)
