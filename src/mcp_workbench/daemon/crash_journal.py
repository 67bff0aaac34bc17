"""Crash journal: shared memory from which an attached process continues if the daemon is killed.

The daemon reads from the host's pipe, so whatever it has read is lost with it, unless it is recorded
here: the requests in flight, and the bytes read but not yet handled. The kernel itself reads the host's
bytes into the journal (`readv`), over zeros, so not even a kill right after a read loses any. Every other
change is a copy of some bytes followed by a store of one number, which makes them count.

What is written to the host passes through a pipe that both processes share (`outbox`): a response is put
there, recorded here as finished, and moved to the host in one system call. So whenever the daemon ends,
a response is in the outbox, or has left, or was never given.

Layout: numbers, two areas for the start of an unfinished line, the chunk that is read into, and two
halves for the list of requests. Of each pair one is valid and the next version is written to the other.

An attached process whose daemon has ended continues by itself (`Resumed`). Requests in flight get their
response, or are performed again if that is safe; the requests that set up the session are repeated to a
new session, and their responses dropped.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from mcp_workbench.daemon.outbox import drain_outbox, undelivered
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import Interceptor
from mcp_workbench.protocol.handshake import MODERN, STAMPS
from mcp_workbench.protocol.translation import complete
from mcp_workbench.server import parse, text
from mcp_workbench.server.host_calls import HostCall
from mcp_workbench.server.parse import Message
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Malformed

if TYPE_CHECKING:
    from mmap import mmap

    from mcp_workbench.app import AnyWriter
    from mcp_workbench.daemon.attach import Takeover
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.session_tools import ToolView
    from mcp_workbench.server.stdio_front import StdioFront
    from mcp_workbench.transport.stdio import Channel

CHUNK_BYTES = 1 << 18  # as much as is read at once
CARRIED_BYTES = 1 << 16  # kept of a line that has not ended
KEPT_BYTES = 1 << 16  # of a request that could be performed again
HALF_BYTES = 1 << 22  # of the list of requests
COMPACT_BYTES = (
    1 << 14
)  # length from which the list is rewritten: memory beyond it is rarely touched
CUT = b"\xff"  # not UTF-8: marks a carried line that is incomplete, which must be refused

_NUMBER = 4  # bytes
_WHICH, _HANDLED, _CARRIED, _HALVES = 0, 1, 2, 4  # indexes of numbers; the last has two
_AT_CARRIED = 4096
_AT_CHUNK = _AT_CARRIED + 2 * CARRIED_BYTES
_AT_HALVES = _AT_CHUNK + CHUNK_BYTES
SIZE = _AT_HALVES + 2 * HALF_BYTES

# Kinds of records. In upper case: the request may be performed again, and its line follows.
CALL, OTHER = b"c", b"o"
_END, _PART, _NO_PART = b"-", b"m", b"n"


def create_journal(folder: str) -> int:
    """A descriptor of anonymous memory; on systems without it, of an unlinked file in `folder`."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mcp-workbench host", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        import tempfile  # not on Linux

        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)  # noqa: PTH108
    os.ftruncate(fd, SIZE)
    _keep_size(fd)
    return fd


def _keep_size(fd: int) -> None:
    """The attached process has the descriptor, too: memory that it cuts off would kill the daemon."""
    import fcntl  # not on Windows, where nothing calls this

    if hasattr(fcntl, "F_ADD_SEALS") and hasattr(os, "memfd_create"):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


# Writing, in the daemon


def open_journal(fd: int) -> CrashJournal:
    """Write to this memory from now on."""
    from mmap import mmap  # the daemon's side only; `read_journal` reads the descriptor

    return CrashJournal(mmap(fd, SIZE))


class CrashJournal:
    """The daemon's side, which writes."""

    def __init__(self, memory: mmap) -> None:
        self.memory = memory
        self.numbers = memoryview(memory).cast("I")
        # The buffer for `readv`.
        self.chunk = memoryview(memory)[_AT_CHUNK : _AT_CHUNK + CHUNK_BYTES]
        self._half = 0
        self._end = _AT_HALVES  # of the list
        self._limit = _AT_HALVES + COMPACT_BYTES
        self._handled = 0
        self._carried = b""
        self._area = 0
        self._under_way: dict[bytes, tuple[bytes, bytes]] = {}  # by id: kind and line
        self._part: bytes | None = None
        self.chunk_read = b""  # the chunk that is being handled

    # From the host

    def read(self, count: int) -> bytes:
        """The bytes that the kernel has read into the chunk."""
        self.chunk_read = self.memory[_AT_CHUNK : _AT_CHUNK + count]
        return self.chunk_read

    def lines_handled(self, lines: int) -> None:
        """So many lines of the chunk are finished, or their requests are in the list.

        A request in the list that can't have been answered yet need not be counted at once.
        """
        self._handled = self.numbers[_HANDLED] = lines

    def chunk_handled(self, data: bytes) -> None:
        """All of the chunk is handled, except the start of a line at its end."""
        self.chunk_read = b""
        carries = self._carried or data[-1:] != b"\n"
        if carries:
            self._carry(data)  # from here on the chunk does not count
        self.chunk[0] = 0
        self.chunk[: len(data)] = bytes(len(data))
        if self._handled:
            self.lines_handled(0)
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

    def started(self, id: bytes, line: bytes, kind: bytes, *, again: bool = False) -> None:
        """A request is in flight; with `again`, another process may perform it again."""
        kept = line if len(line) <= KEPT_BYTES else b""
        if again and kept:
            kind = kind.upper()
        self._under_way[id] = (kind, kept)
        self._append(_record(id, kind, kept))

    def set_repeatable(self, id: bytes, *, again: bool) -> None:
        """A request in flight may be performed again, or no longer."""
        kind, line = self._under_way.get(id, (b"", b""))
        now = kind.upper() if again and line else kind.lower()
        if now != kind:
            self._under_way[id] = (now, line)
            self._append(_record(id, now, line))

    # To the host

    def finished(self, id: bytes) -> None:
        """A request has its response, or needs none."""
        if self._under_way.pop(id, None) is not None:
            self._append(b"-%b\n" % id)

    def all_finished(self, ids: list[bytes]) -> None:
        """Like `finished` for several requests, in one step."""
        pop = self._under_way.pop
        if records := b"".join([b"-%b\n" % id for id in ids if pop(id, None)]):
            self._append(records)

    def set_partial(self, about: bytes | None) -> None:
        """A frame may leave in part: the response to this request (empty: another frame); None: none."""
        if about != self._part:
            self._part = about
            self._append(_part_record(about))

    def _append(self, record: bytes) -> None:
        start = self._end
        end = start + len(record)
        if end > self._limit:
            self._compact()
            return
        self.memory[start:end] = record
        self._end = end
        half = self._half
        self.numbers[_HALVES + half] = end - _AT_HALVES - half * HALF_BYTES

    def _compact(self) -> None:
        """Write the list anew into the other half, with the requests in flight only."""
        records = self._records()
        if len(records) > HALF_BYTES // 2:  # then nothing is performed again
            self._under_way = {id: (k.lower(), b"") for id, (k, _) in self._under_way.items()}
            records = self._records()
        records = records[: records.rfind(b"\n", 0, HALF_BYTES) + 1]
        half = 1 - self._half
        start = _AT_HALVES + half * HALF_BYTES
        self.memory[start : start + len(records)] = records
        self.numbers[_HALVES + half] = len(records)
        self.numbers[_WHICH] = half
        self._half, self._end = half, start + len(records)
        self._limit = start + min(max(COMPACT_BYTES, 2 * len(records)), HALF_BYTES)

    def _records(self) -> bytes:
        records = [_record(id, *entry) for id, entry in self._under_way.items()]
        return b"".join([_part_record(self._part), *records])


def _record(id: bytes, kind: bytes, line: bytes) -> bytes:
    if kind.islower():
        return b"%b%b\n" % (kind, id)
    return b"%b%d %b%b\n" % (kind, len(id), id, line)


def _part_record(about: bytes | None) -> bytes:
    return b"n\n" if about is None else b"m%b\n" % about


class JournalInterceptor(Interceptor):
    """Records before a call is sent whether it may be sent again if the daemon is killed.

    Another process may send what has not yet reached a server, and calls of tools that declare
    themselves read-only or idempotent. In doubt a call is recorded as not repeatable, in advance.
    """

    def __init__(self, journal: CrashJournal) -> None:
        self._journal = journal

    def before(self, call: Call) -> None:
        if isinstance(call, HostCall) and call.route is not None:
            # A script is never run again: its calls before this one would be, too.
            again = call.route.is_harmless and call.is_repeatable() and not call.parent
            self._journal.set_repeatable(call.id, again=again)


# Reading, in the attached process


class PendingRequest(NamedTuple):
    """A request without a response."""

    is_call: bool
    line: bytes = b""  # if it may be performed again


class JournalContents(NamedTuple):
    """What was in flight when the daemon ended."""

    under_way: dict[bytes, PendingRequest]
    lines: list[bytes]  # read but not handled
    rest: bytes  # the start of a line that had not ended
    part: bytes | None  # the request whose response may have left in part; empty: another frame


def read_journal(fd: int) -> JournalContents:
    """The attached process's side: the contents, after the daemon has ended."""

    def number(at: int) -> int:
        return int.from_bytes(os.pread(fd, _NUMBER, at * _NUMBER), sys.byteorder)

    half = number(_WHICH)
    records = os.pread(fd, number(_HALVES + half), _AT_HALVES + half * HALF_BYTES)
    under_way, part = _read_records(records)
    state = number(_CARRIED)
    carried = os.pread(fd, state >> 2, _AT_CARRIED + (state >> 1 & 1) * CARRIED_BYTES)
    chunk = os.pread(fd, CHUNK_BYTES, _AT_CHUNK).partition(b"\0")[0]  # JSON contains no NUL
    *whole, rest = (carried + (b"" if state & 1 else chunk)).split(b"\n")
    lines = [line for line in whole if line and not line.isspace()]
    return JournalContents(under_way, lines[number(_HANDLED) :], rest, part)


def _read_records(records: bytes) -> tuple[dict[bytes, PendingRequest], bytes | None]:
    under_way: dict[bytes, PendingRequest] = {}
    part: bytes | None = None
    for record in records.split(b"\n")[:-1]:
        kind, body = record[:1], record[1:]
        if kind == _END:
            under_way.pop(body, None)
        elif kind in (_PART, _NO_PART):
            part = body if kind == _PART else None
        elif kind.islower():
            under_way[body] = PendingRequest(kind == CALL)
        else:
            size, _, id_and_line = body.partition(b" ")
            id, line = id_and_line[: int(size)], id_and_line[int(size) :]
            under_way[id] = PendingRequest(kind.lower() == CALL, line)
    return under_way, part


# Continuing, in the attached process


CODE = "server_exited"
WHY = "Error: the shared workbench has ended while this was under way; it may have run"
QUESTIONS_FROM = 1_000_000  # first id of our questions: responses to the daemon's match none
LISTEN = "subscriptions/listen"

_CALL = text.error_texts(CODE, WHY)
_OTHER = jsonrpc.error_object(jsonrpc.SERVER_ERROR, WHY, {text.CODE_KEY: CODE})


def resumption(takeover: Takeover | None) -> Resumed | None:
    """How to continue a host's session; None if it is a new one."""
    return None if takeover is None else Resumed(takeover)


class Resumed:
    """Brings a new session to the state of the old one."""

    def __init__(self, takeover: Takeover) -> None:
        self._takeover = takeover
        self._contents = read_journal(takeover.journal)
        os.close(takeover.journal)
        self._started = frozenset(self._contents.under_way)  # one may still be among the lines
        self._undelivered = self._drain(takeover.outlet)
        self._filter: DuplicateFilter | None = None

    def _drain(self, outlet: int) -> bytes:
        """The bytes that the host has not received; the requests answered by them are finished."""
        data = b""
        if outlet >= 0:
            data = drain_outbox(outlet)
            os.close(outlet)
        passed_on, completed = undelivered(data, self._contents)
        under_way = self._contents.under_way
        under_way.pop(completed or b"", None)
        for line in passed_on.split(b"\n"):
            under_way.pop(_answered_by(line), None)
        return passed_on

    def channel(self, channel: AnyWriter) -> Channel:
        if self._undelivered:
            channel.send(self._undelivered)
        self._filter = DuplicateFilter(channel)
        return self._filter

    def resume(self, session: HostSession, front: StdioFront, menu: ToolView) -> None:
        answered = self._filter.answered if self._filter is not None else set[bytes]()
        session.elicitation.input_requests.numbers = count(QUESTIONS_FROM)
        for line in self._takeover.kept:
            self._repeat(line, session, answered)
        for toolbox in self._takeover.opened:
            menu.opened(toolbox)
        if self._takeover.is_modern:
            session.era.revision = MODERN
        self._perform_pending(session)
        for line in self._contents.lines:
            if not _is_one_of(self._started, line):
                front.receive(line + b"\n")
        front.receive(self._contents.rest)

    def _perform_pending(self, session: HostSession) -> None:
        """Perform requests in flight again if that is safe; fail the others, which may have run."""
        for id, request in self._contents.under_way.items():
            message = _read(request.line)
            if message is not None:
                session.receive(message)
            else:
                _fail(session, id, is_call=request.is_call)

    def _repeat(self, line: bytes, session: HostSession, answered: set[bytes]) -> None:
        """Repeat a request that set up the session. A response that the host has is dropped."""
        message = parse.read(line)  # it was valid before
        id = bytes(message.id)
        under_way = self._contents.under_way
        if id in under_way:
            del under_way[id]  # this is its first response
        elif message.method == LISTEN:
            return  # it has ended
        else:
            answered.add(id)
        session.receive(message)


class DuplicateFilter:
    """A channel to the host that drops responses the host already has."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.answered: set[bytes] = set()

    @property
    def backlog(self) -> int:
        return self._channel.backlog

    def send(self, frame: bytes, about: bytes = b"") -> None:
        if about in self.answered and jsonrpc.answers(frame, about):
            self.answered.discard(about)
        else:
            self._channel.send(frame, about)


def _is_one_of(ids: frozenset[bytes], line: bytes) -> bool:
    message = _read(line)
    return message is not None and bool(message.method) and bytes(message.id) in ids


def _answered_by(line: bytes) -> bytes:
    """The id of the request whose response this is; empty if it is none."""
    message = _read(line)
    return b"" if message is None or message.method else bytes(message.id)


def _fail(session: HostSession, id: bytes, *, is_call: bool) -> None:
    if is_call:
        result = complete(_CALL, STAMPS) if session.era.modern else _CALL
        session.put(jsonrpc.answer(id, result), id)
    else:
        session.put(jsonrpc.refusal(id, _OTHER), id)


def _read(line: bytes) -> Message | None:
    try:
        return parse.read(line)
    except Malformed:
        return None
