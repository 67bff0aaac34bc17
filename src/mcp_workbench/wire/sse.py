"""Server-sent events: bytes in, events out; linear in time, bounded in memory."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

BOM = b"\xef\xbb\xbf"
FIELD_BYTES = 64  # room for a field's name beside what the cap allows


class Event(msgspec.Struct, frozen=True):
    """One event as it was sent; lines of data are joined by newlines."""

    data: bytes
    name: str = "message"


class EventTooLarge(Exception):
    """An event went past the cap; the stream can't be read any further."""


class EventReader:
    """Cuts a stream into events. Lines may end in LF, CRLF or CR, and chunks anywhere."""

    def __init__(self, limit: int, last_id: str = "") -> None:
        self.last_id = last_id  # of the last event that had one, maybe on an earlier stream
        self.retry: int | None = None  # milliseconds that the server asks us to wait
        self._limit = limit
        self._held: list[bytes] = []  # of an unfinished line
        self._held_size = 0
        self._data: list[bytes] = []  # of an unfinished event
        self._data_size = 0
        self._name = ""
        self._id = last_id
        self._after_return = False  # the last byte was a CR: an LF now belongs to it
        self._started = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that this chunk completes. Raises EventTooLarge."""
        *whole, rest = self._unified(chunk).split(b"\n")
        for part in whole:
            self._hold(part)
            event = self._line(self._finished())
            if event is not None:
                yield event
        self._hold(rest)

    def _unified(self, chunk: bytes) -> bytes:
        """The same with one kind of line end."""
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _hold(self, part: bytes) -> None:
        if not part:
            return
        self._held.append(part)
        self._held_size += len(part)
        if self._held_size + self._data_size > self._limit + FIELD_BYTES:
            raise EventTooLarge

    def _finished(self) -> bytes:
        line = b"".join(self._held)
        self._held.clear()
        self._held_size = 0
        if not self._started:
            self._started = True
            line = line.removeprefix(BOM)
        return line

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._event()
        field, colon, value = line.partition(b":")
        if colon and not field:  # a comment
            return None
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
            if self._data_size > self._limit + 1:
                raise EventTooLarge
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit():
            self.retry = int(value[:9])
        return None

    def _event(self) -> Event | None:
        self.last_id = self._id
        data, name = self._data, self._name
        self._data, self._data_size, self._name = [], 0, ""
        if not data:
            return None
        return Event(b"\n".join(data), name or "message")
