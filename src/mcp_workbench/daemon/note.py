"""What a joiner needs to know if the daemon is killed: memory that both share.

The daemon reads from the host's pipe, so what it has read is gone with it, unless it is noted here:
which requests are under way, and what was read and not yet looked at. The system itself puts here what
it reads, where otherwise nothing but zeros stands, so that not even the moment after a read is too
early for the end. All else is a copy of some bytes and of one number, the number last.

What is written to the host goes through a pipe that both share as well (`basin`): an answer is put there,
noted here as given, and moved to the host in one step of the system. So whenever the daemon ends, an
answer is in the basin, or has left, or was never given.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mmap import mmap

CHUNK_BYTES = 1 << 18  # as much as is read at once
CARRIED_BYTES = 1 << 16  # kept of a line that has not ended
KEPT_BYTES = 1 << 16  # of a request that could be performed again
HALF_BYTES = 1 << 22  # of the list of requests; it is written anew into the other half
TIDY_BYTES = 1 << 14  # and not before it has this length: no more memory is ever touched
CUT = b"\xff"  # no text: what was carried is not all of it, and its line must be refused

_NUMBER = 4  # bytes
_WHICH, _HANDLED, _CARRIED, _HALVES = 0, 1, 2, 4  # numbers; of the last there are two
_AT_CARRIED = 4096  # there are two of them, too
_AT_CHUNK = _AT_CARRIED + 2 * CARRIED_BYTES
_AT_HALVES = _AT_CHUNK + CHUNK_BYTES
SIZE = _AT_HALVES + 2 * HALF_BYTES

# What a record says of a request. A capital: whoever reads it may perform the request anew.
CALL, OTHER = b"c", b"o"
_END, _PART, _NO_PART = b"-", b"m", b"n"


class UnderWay(NamedTuple):
    """A request without an answer."""

    is_call: bool
    line: bytes = b""  # where it may be performed anew


class Left(NamedTuple):
    """What was under way when the daemon ended."""

    under_way: dict[bytes, UnderWay]
    lines: list[bytes]  # read, and not looked at
    rest: bytes  # the start of a line that had not ended
    part: bytes | None  # whose answer may have left in part; empty: some other frame


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
        self.memory = memory
        self.numbers = memoryview(memory).cast("I")
        # Where what is read has to be put.
        self.chunk = memoryview(memory)[_AT_CHUNK : _AT_CHUNK + CHUNK_BYTES]
        self._half = 0
        self._end = _AT_HALVES  # of the list
        self._room = _AT_HALVES + TIDY_BYTES
        self._handled = 0
        self._carried = b""
        self._area = 0
        self._under_way: dict[bytes, tuple[bytes, bytes]] = {}  # by id: its kind, and its line
        self._part: bytes | None = None
        self.chunk_read = b""  # and is not done with

    # What comes from the host

    def read(self, count: int) -> bytes:
        """What the system has put there."""
        self.chunk_read = self.memory[_AT_CHUNK : _AT_CHUNK + count]
        return self.chunk_read

    def looked_at(self, lines: int) -> None:
        """So many lines of the chunk are done with, or their requests stand in the list.

        Of those that stand there, and can't have been answered yet, it need not be said.
        """
        self._handled = self.numbers[_HANDLED] = lines

    def done(self, data: bytes) -> None:
        """All of the chunk was looked at, but for the start of a line at its end."""
        self.chunk_read = b""
        carries = self._carried or data[-1:] != b"\n"
        if carries:
            self._carry(data)  # from here on the chunk does not count
        self.chunk[0] = 0
        self.chunk[: len(data)] = bytes(len(data))
        if self._handled:
            self.looked_at(0)
        if carries:
            self.numbers[_CARRIED] = len(self._carried) << 2 | self._area << 1

    def _carry(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        carried = data[end:] if end else self._carried + data
        if len(carried) > CARRIED_BYTES:
            carried = carried[: CARRIED_BYTES - 1].removesuffix(CUT) + CUT
        self._area = 1 - self._area
        start = _AT_CARRIED + self._area * CARRIED_BYTES
        self.memory[start : start + len(carried)] = carried
        self._carried = carried
        self.numbers[_CARRIED] = len(carried) << 2 | self._area << 1 | 1

    def begun(self, id: bytes, line: bytes, kind: bytes, *, again: bool = False) -> None:
        """A request is looked at from now on; `again`: whoever reads this may do it anew."""
        kept = line if len(line) <= KEPT_BYTES else b""
        if again and kept:
            kind = kind.upper()
        self._under_way[id] = (kind, kept)
        self._append(_record(id, kind, kept))

    def becomes(self, id: bytes, *, again: bool) -> None:
        """It may be done anew, or no longer."""
        kind, line = self._under_way.get(id, (b"", b""))
        now = kind.upper() if again and line else kind.lower()
        if now != kind:
            self._under_way[id] = (now, line)
            self._append(_record(id, now, line))

    # What goes to the host

    def ended(self, id: bytes) -> None:
        """It has its answer, or wants none."""
        if self._under_way.pop(id, None) is not None:
            self._append(b"-%b\n" % id)

    def all_ended(self, ids: list[bytes]) -> None:
        """The same for many, in one step."""
        pop = self._under_way.pop
        if records := b"".join([b"-%b\n" % id for id in ids if pop(id, None)]):
            self._append(records)

    def partly(self, about: bytes | None) -> None:
        """A part of a frame may leave, the answer to this request or another; or (None) no more."""
        if about != self._part:
            self._part = about
            self._append(_part(about))

    def _append(self, record: bytes) -> None:
        start = self._end
        end = start + len(record)
        if end > self._room:
            self._tidy()
            return
        self.memory[start:end] = record
        self._end = end
        half = self._half
        self.numbers[_HALVES + half] = end - _AT_HALVES - half * HALF_BYTES

    def _tidy(self) -> None:
        """Begin anew in the other half, with what is under way."""
        whole = self._whole()
        if len(whole) > HALF_BYTES // 2:  # then nothing is done anew
            self._under_way = {id: (k.lower(), b"") for id, (k, _) in self._under_way.items()}
            whole = self._whole()
        whole = whole[: whole.rfind(b"\n", 0, HALF_BYTES) + 1]
        half = 1 - self._half
        start = _AT_HALVES + half * HALF_BYTES
        self.memory[start : start + len(whole)] = whole
        self.numbers[_HALVES + half] = len(whole)
        self.numbers[_WHICH] = half
        self._half, self._end = half, start + len(whole)
        self._room = start + min(max(TIDY_BYTES, 2 * len(whole)), HALF_BYTES)

    def _whole(self) -> bytes:
        records = [_record(id, *entry) for id, entry in self._under_way.items()]
        return b"".join([_part(self._part), *records])


def _record(id: bytes, kind: bytes, line: bytes) -> bytes:
    if kind.islower():
        return b"%b%b\n" % (kind, id)
    return b"%b%d %b%b\n" % (kind, len(id), id, line)


def _part(about: bytes | None) -> bytes:
    return b"n\n" if about is None else b"m%b\n" % about


def open_note(fd: int) -> Note:
    """Write into this memory from now on."""
    from mmap import mmap  # a joiner only reads

    return Note(mmap(fd, SIZE))


def read_note(fd: int) -> Left:
    """The joiner's side: what stands there, now that nobody writes any more."""

    def number(at: int) -> int:
        return int.from_bytes(os.pread(fd, _NUMBER, at * _NUMBER), sys.byteorder)

    half = number(_WHICH)
    records = os.pread(fd, number(_HALVES + half), _AT_HALVES + half * HALF_BYTES)
    under_way, part = _read_records(records)
    state = number(_CARRIED)
    carried = os.pread(fd, state >> 2, _AT_CARRIED + (state >> 1 & 1) * CARRIED_BYTES)
    chunk = os.pread(fd, CHUNK_BYTES, _AT_CHUNK).partition(b"\0")[0]  # no text of JSON holds one
    *whole, rest = (carried + (b"" if state & 1 else chunk)).split(b"\n")
    lines = [line for line in whole if line and not line.isspace()]
    return Left(under_way, lines[number(_HANDLED) :], rest, part)


def _read_records(records: bytes) -> tuple[dict[bytes, UnderWay], bytes | None]:
    under_way: dict[bytes, UnderWay] = {}
    part: bytes | None = None
    for record in records.split(b"\n")[:-1]:
        kind, told = record[:1], record[1:]
        if kind == _END:
            under_way.pop(told, None)
        elif kind in (_PART, _NO_PART):
            part = told if kind == _PART else None
        elif kind.islower():
            under_way[told] = UnderWay(kind == CALL)
        else:
            size, _, both = told.partition(b" ")
            id, line = both[: int(size)], both[int(size) :]
            under_way[id] = UnderWay(kind.lower() == CALL, line)
    return under_way, part
