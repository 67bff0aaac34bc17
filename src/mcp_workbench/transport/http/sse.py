"""Server-sent events, read and written: linear in time, bounded in memory."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mcp_workbench.transport.json_text import BOM, one_line

FIELD_BYTES = 64  # for a field's name, in addition to the limit
LINES = 1024  # that are split off at once: a list of many short ones is larger than their bytes
LONG = 256 << 10  # bytes of data that are not copied more often than needed
NAME_BYTES = 1024  # of an event's name and of its id, which is sent back in a header
COMMENT = b":\n\n"  # keeps a stream alive


class Event(msgspec.Struct, frozen=True):
    """One event as received; lines of data are joined by newlines."""

    data: bytes
    name: str = "message"


class EventTooLarge(Exception):
    """An event exceeds the limit; the stream can't be read any further."""


class EventReader:
    """Splits a stream into events. Lines may end in LF, CRLF or CR, and chunks anywhere."""

    def __init__(self, limit: int, last_id: str = "") -> None:
        self.last_id = last_id  # of the last event that had one, possibly on an earlier stream
        self.retry: int | None = None  # milliseconds that the server asks us to wait
        self._limit = limit
        # One buffer each: many small pieces would take many times the memory of their bytes.
        self._held = bytearray()  # of an unfinished line
        self._data: bytes | bytearray | None = None  # of an unfinished event
        self._name = ""
        self._id = last_id
        self._after_return = False  # the last byte was a CR: an LF now belongs to it
        self._started = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that this chunk completes. Raises EventTooLarge."""
        rest, whole = self._unified(chunk), None
        while whole is None or len(whole) == LINES:
            *whole, rest = rest.split(b"\n", LINES)
            for part in whole:
                event = self._line(self._finished(part))
                if event is not None:
                    yield event
        self._held += rest
        self._check(self._held)

    def _unified(self, chunk: bytes) -> bytes:
        """Return the chunk with LF as its only line end."""
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _check(self, line: bytes | bytearray) -> None:
        if len(line) + len(self._data or b"") > self._limit + FIELD_BYTES:
            raise EventTooLarge

    def _finished(self, part: bytes) -> bytes:
        """Return the line that this part completes."""
        line = part
        if self._held:
            self._held += part
            line = bytes(self._held)
            self._held.clear()
        self._check(line)
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
            self._add(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace") if len(value) <= NAME_BYTES else "?"
        elif field == b"id" and len(value) <= NAME_BYTES and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value[:NAME_BYTES].isdigit():
            self.retry = int(value[:9])
        return None

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._limit:
            raise EventTooLarge

    def _event(self) -> Event | None:
        self.last_id = self._id
        data, name = self._data, self._name
        self._data, self._name = None, ""
        if data is None:
            return None
        return Event(bytes(data), name or "message")


def event(data: bytes, id: bytes = b"", retry: int = 0) -> bytes:
    """Encode one event. Line breaks between JSON tokens become spaces: they would end the data."""
    text: bytes | memoryview = one_line(data.rstrip()) if len(data) <= LONG else _long_line(data)
    lines = b"retry: %d\n" % retry if retry else b""
    if id:
        lines += b"id: %b\n" % id
    return b"".join((lines, b"data: ", text, b"\n\n"))  # a format would copy long data twice


def _long_line(data: bytes) -> bytes | memoryview:
    """The same without a copy, if it is one line with its end."""
    end = data.find(b"\n")
    if end == len(data) - 1 and data.find(b"\r") < 0:
        return memoryview(data)[:end]
    return one_line(data.rstrip())
