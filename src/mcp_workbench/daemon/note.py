"""What a joiner needs to know if the daemon is killed: memory that both share.

The daemon reads from the host's pipe, so what it has read is gone with it, unless it is noted here:
which requests are under way, and what was read and not yet looked at. The system itself puts here what
it reads, where otherwise nothing but zeros stands, so that not even the moment after a read is too
early for the end. All else is a copy of some bytes and of one number, the number last.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mmap import mmap

CHUNK_BYTES = 1 << 18  # as much as is read at once
CARRIED_BYTES = 1 << 16  # kept of a line that has not ended
HALF_BYTES = 1 << 20  # of the list of requests; it is written anew into the other half
TIDY_BYTES = 1 << 14  # and not before it has this length: no more memory is ever touched
CUT = b"\xff"  # no text: what was carried is not all of it, and its line must be refused

_NUMBER = 4
_WHICH, _HANDLED, _CARRIED, _MIDLINE, _HALVES = 0, 4, 8, 12, 16
_AT_CARRIED = 4096
_AT_CHUNK = _AT_CARRIED + CARRIED_BYTES
_AT_HALVES = _AT_CHUNK + CHUNK_BYTES
SIZE = _AT_HALVES + 2 * HALF_BYTES

_CALL, _OTHER, _END = b"c", b"o", b"-"


class Left(NamedTuple):
    """What was under way when the daemon ended."""

    under_way: dict[bytes, bool]  # by id: is it a call?
    lines: list[bytes]  # read, and not looked at
    rest: bytes  # the start of a line that had not ended
    is_mid_line: bool  # was a part of an answer written?


def new_note(folder: str) -> int:
    """Memory without a name; where the system has none, a file that has lost its name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mcp-workbench host")
    else:
        import tempfile  # not on Linux

        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)  # noqa: PTH108
    os.ftruncate(fd, SIZE)
    return fd


class Note:
    """The daemon's side: it writes."""

    def __init__(self, memory: mmap) -> None:
        self._memory = memory
        self._half = 0
        self._length = 0
        self._room = TIDY_BYTES
        self._carried = b""
        # Where what is read has to be put.
        self.chunk = memoryview(memory)[_AT_CHUNK : _AT_CHUNK + CHUNK_BYTES]
        self._under_way: dict[bytes, bytes] = {}

    # What comes from the host

    def looked_at(self, lines: int) -> None:
        """So many lines of the chunk were looked at; the next one may have been, too."""
        self._set(_HANDLED, lines)

    def done(self, data: bytes) -> None:
        """All of the chunk was looked at, but for the start of a line at its end."""
        self.chunk[: len(data)] = bytes(len(data))
        self._set(_HANDLED, 0)
        end = data.rfind(b"\n") + 1
        carried = data[end:] if end else self._carried + data
        if carried or self._carried:
            if len(carried) > CARRIED_BYTES:
                carried = carried[: CARRIED_BYTES - 1].removesuffix(CUT) + CUT
            self._set(_CARRIED, 0)
            self._memory[_AT_CARRIED : _AT_CARRIED + len(carried)] = carried
            self._set(_CARRIED, len(carried))
            self._carried = carried

    def begun(self, id: bytes, *, is_call: bool) -> None:
        """A request is looked at from now on."""
        kind = _CALL if is_call else _OTHER
        self._under_way[id] = kind
        self._append(kind + id + b"\n")

    # What goes to the host

    def ended(self, *ids: bytes) -> None:
        """They have their answers, or want none: all of them in one step."""
        pop = self._under_way.pop
        if records := b"".join([b"-%b\n" % id for id in ids if pop(id, None)]):
            self._append(records)

    def mid_line(self, *, is_so: bool) -> None:
        self._set(_MIDLINE, int(is_so))

    def _append(self, record: bytes) -> None:
        end = self._length + len(record)
        if end > self._room:
            self._tidy()
            return
        start = _AT_HALVES + self._half * HALF_BYTES
        self._memory[start + self._length : start + end] = record
        self._length = end
        self._set(_HALVES + self._half * _NUMBER, end)

    def _tidy(self) -> None:
        """Begin anew in the other half, with what is under way."""
        whole = b"".join(b"%b%b\n" % (kind, id) for id, kind in self._under_way.items())
        whole = whole[: whole.rfind(b"\n", 0, HALF_BYTES) + 1]
        other = 1 - self._half
        start = _AT_HALVES + other * HALF_BYTES
        self._memory[start : start + len(whole)] = whole
        self._set(_HALVES + other * _NUMBER, len(whole))
        self._set(_WHICH, other)
        self._half, self._length = other, len(whole)
        self._room = min(max(TIDY_BYTES, 2 * len(whole)), HALF_BYTES)

    def _set(self, at: int, number: int) -> None:
        self._memory[at : at + _NUMBER] = number.to_bytes(_NUMBER, "little")


def open_note(fd: int) -> Note:
    """Write into this memory from now on."""
    from mmap import mmap  # a joiner only reads

    return Note(mmap(fd, SIZE))


def read_note(fd: int) -> Left:
    """The joiner's side: what stands there, now that nobody writes any more."""

    def number(at: int) -> int:
        return int.from_bytes(os.pread(fd, _NUMBER, at), "little")

    half = number(_WHICH)
    records = os.pread(fd, number(_HALVES + half * _NUMBER), _AT_HALVES + half * HALF_BYTES)
    under_way: dict[bytes, bool] = {}
    for record in records.split(b"\n")[:-1]:
        kind, id = record[:1], record[1:]
        if kind == _END:
            under_way.pop(id, None)
        else:
            under_way[id] = kind == _CALL
    carried = os.pread(fd, number(_CARRIED), _AT_CARRIED)
    chunk = os.pread(fd, CHUNK_BYTES, _AT_CHUNK).partition(b"\0")[0]  # no text of JSON holds one
    *whole, rest = (carried + chunk).split(b"\n")
    lines = [line for line in whole if line and not line.isspace()]
    return Left(under_way, lines[number(_HANDLED) :], rest, bool(number(_MIDLINE)))
