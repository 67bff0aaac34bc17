"""A joined host's lines: each request is recorded in the crash journal before it is handled."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.daemon import control
from mcp_workbench.daemon.crash_journal import CALL, OTHER, CrashJournal
from mcp_workbench.daemon.outbox import OutboxWriter
from mcp_workbench.server.parse import Message, UseToolRequest, cancelled_id
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.json_text import HugeLine
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.stdio import READ_BYTES, PipeReader

Notify = Callable[..., None]  # sends one frame, given by its fields, to the attached process

# Requests that set up a session. An attached process that continues on its own repeats them.
KEPT = frozenset(
    {
        "initialize",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
    }
)
KEPT_BYTES = 1 << 16  # of one such request


class JoinedFront(StdioFront):
    """Reads a joined host's lines and records each request before it is handled."""

    def __init__(
        self,
        session: HostSession,
        channel: OutboxWriter,
        limit: int,
        journal: CrashJournal,
        notify: Notify,
    ) -> None:
        super().__init__(session, channel, limit)
        self._line = b""  # the line that is being handled
        self._count = 0  # lines of the chunk handled so far, with this one
        self._journal = journal
        self._notify = notify
        self._take = self._take_recorded
        self._is_modern = False
        self._is_pressed = False  # the host does not read its responses
        self.is_closing = False
        self.is_stopped = False  # a request was left in the journal: nothing more may be read
        self._received = 0  # bytes of the chunk, in the parts received so far

    def listen(self, fd: int, ended: Callable[[], None]) -> PipeReader:
        """Read from the host."""
        reader = self._reader = JournalReader(fd, self.receive, ended)
        reader.into(self._journal)
        return reader

    def hold(self, *, held: bool) -> None:
        """Stop or resume reading: a host that does not read its responses is not read from, either."""
        self._is_pressed = held
        self._hold_reader()

    @property
    def _is_held(self) -> bool:
        return self._is_pressed or self.is_stopped or super()._is_held

    def receive(self, data: bytes) -> None:
        """Bytes from the host. While closing, a new request and all after it stay in the journal.

        `data` is a whole chunk, or a part of one: then other callbacks run before the next part, and
        requests of this part may be answered by then.
        """
        journal = self._journal
        if self.is_stopped:
            return
        if self._behind is not None:
            self._behind.append(data)
            return
        if not self._received:
            self._count = 0
        self._received += len(data)
        for line in self._framer.feed(data):
            if self.is_closing and _is_request(line):
                self._stop()
                return
            self._count += 1
            self._receive_line(line)
            journal.lines_handled(self._count)
        if self._behind is None:  # else a huge message begins, and the rest of the chunk waits
            self._part_handled(data)

    def _part_handled(self, data: bytes) -> None:
        journal = self._journal
        chunk = journal.chunk_read or data
        if self._received < len(chunk):
            journal.lines_handled(self._count)
        else:
            self._received = 0
            journal.chunk_handled(chunk)
        if self._framer.overflow is not None:
            self._refuse_large()

    def _begin_huge(self, huge: HugeLine) -> None:
        self._received -= len(huge.behind)
        super()._begin_huge(huge)

    def _stop(self) -> None:
        self.is_stopped = True
        self._hold_reader()

    def _receive_huge(self, line: bytes, read: Message | Malformed) -> None:
        if self.is_closing and not isinstance(read, Malformed) and read.method and read.id:
            self._stop()
            return
        self._count += 1
        self._line = line
        super()._receive_huge(line, read)
        self._journal.lines_handled(self._count)

    def _receive_line(self, line: bytes) -> None:
        self._line = line  # of a batch, too
        super()._receive_line(line)

    def _receive_batch(self, line: bytes) -> None:
        """Record all requests of a batch before the first is answered."""
        with suppress(Malformed):
            for member in jsonrpc.read_batch(line):
                with suppress(Malformed):
                    self._line = member
                    self._record(jsonrpc.decode_text(member))
        self._journal.lines_handled(self._count)
        super()._receive_batch(line)

    def _record(self, message: Message) -> bool:
        """Record a request before it is handled: until it is sent, it may be performed again.

        A request whose id is in use is not recorded, since it is refused.
        """
        id = bytes(message.id) if message.method else b""
        if not id or id in self._session.under_way:
            return False
        kind = CALL if message.method == TOOLS_CALL else OTHER
        continues = b'"requestState"' in self._line  # a call whose state only this process has
        self._journal.started(id, self._line, kind, again=not continues)
        return True

    def _take_recorded(self, message: Message) -> None:
        method = message.method
        if self._record(message):
            line = self._line
            if method in KEPT and len(line) < KEPT_BYTES:
                self._notify(control.KEEP, line)
            self._journal.lines_handled(self._count)
        self._session.receive(message)
        if not isinstance(message, UseToolRequest) and method == "notifications/cancelled":
            self._journal.lines_handled(self._count)
            self._journal.finished(cancelled_id(message))
        if self._session.era.modern and not self._is_modern:
            self._is_modern = True
            self._notify(control.MODERN)


def _is_request(line: bytes) -> bool:
    try:
        message = jsonrpc.decode_text(line)
    except Malformed:
        return False
    return bool(message.method and message.id)


class JournalReader(PipeReader):
    """Reads from a joined host straight into the journal."""

    journal: CrashJournal
    small: tuple[memoryview]

    def into(self, journal: CrashJournal) -> None:
        self.journal = journal
        self.small = (journal.chunk[:READ_BYTES],)

    def read(self, fd: int, most: int) -> bytes:
        buffers = self.small if most == READ_BYTES else (self.journal.chunk[:most],)
        return self.journal.read(os.readv(fd, buffers))
