"""A joined host's pipes: like those of `serve`, with a note of what its joiner would need to know."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from mcp_workbench.daemon import words
from mcp_workbench.daemon.note import Note
from mcp_workbench.daemon.session import JoinedSession
from mcp_workbench.daemon.writer import NotedWriter
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.reading import cancelled_id
from mcp_workbench.surface.stdio_front import StdioFront
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope, Malformed
from mcp_workbench.wire.stdio import READ_BYTES, PipeReader
from mcp_workbench.workbench import Workbench

Tell = Callable[..., None]  # the joiner, in fields of one frame

# What makes a conversation what it is; a joiner that goes on by itself says it again.
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
    """Reads a joined host's lines."""

    def __init__(
        self, session: JoinedSession, channel: NotedWriter, limit: int, note: Note, tell: Tell
    ) -> None:
        super().__init__(session, channel, limit)
        self._joined = session
        self._reader: PipeReader | None = None
        self._note = note
        self._tell = tell
        self._take = self._take_noted
        self._is_modern = False
        self.is_closing = False
        self.is_full = False  # a request was left in the note: nothing more may be read
        self._received = 0  # bytes of what was read at once, in the parts so far

    def listen(self, fd: int, ended: Callable[[], None]) -> PipeReader:
        """Read from the host. One that does not read what we say is not read from, either."""
        reader = self._reader = NotedReader(fd, self.receive, ended)
        reader.into(self._note)
        return reader

    def hold(self, *, held: bool) -> None:
        if self._reader is not None:
            self._reader.hold(held=held or self.is_full)

    def receive(self, data: bytes) -> None:
        """Bytes from the host. While we close, a new request and all after it are left in the note.

        They are all that was read at once, or a part: then others have a turn before the next, and what
        this one asks for may be answered by then.
        """
        note, session = self._note, self._joined
        if self.is_full:
            return
        if not self._received:
            session.count = 0
        self._received += len(data)
        for line in self._framer.feed(data):
            if self.is_closing and _is_request(line):
                self.is_full = True
                self.hold(held=True)
                return
            session.count += 1
            session.line = line
            if not self._express(line):
                self._receive_line(line)
                note.looked_at(session.count)
        whole = note.chunk_read or data
        if self._received < len(whole):
            note.looked_at(session.count)
        else:
            self._received = 0
            note.done(whole)
        if self._framer.overflow is not None:
            self._refuse_large()

    def _receive_line(self, line: bytes) -> None:
        self._joined.line = line  # of a batch, too
        super()._receive_line(line)

    def _receive_batch(self, line: bytes) -> None:
        """All of its requests are noted before the first is answered."""
        with suppress(Malformed):
            for member in envelope.read_batch(line):
                with suppress(Malformed):
                    self._joined.line = member
                    self._begin(envelope.decode_text(member))
        self._note.looked_at(self._joined.count)
        super()._receive_batch(line)

    def _begin(self, message: Envelope) -> bool:
        """Note a request; one whose id is in use is refused without that."""
        id = bytes(message.id) if message.method else b""
        if not id or id in self._session.under_way:
            return False
        self._joined.begun(message)
        return True

    def _take_noted(self, message: Envelope) -> None:
        method = message.method
        if self._begin(message):
            line = self._joined.line
            if method in KEPT and len(line) < KEPT_BYTES:
                self._tell(words.KEEP, line)
            self._note.looked_at(self._joined.count)
        self._session.receive(message)
        if method == "notifications/cancelled":
            self._note.looked_at(self._joined.count)
            self._note.ended(cancelled_id(message.params))
        if self._session.era.modern and not self._is_modern:
            self._is_modern = True
            self._tell(words.MODERN)


def _is_request(line: bytes) -> bool:
    try:
        message = envelope.decode_text(line)
    except Malformed:
        return False
    return bool(message.method and message.id)


class NotedReader(PipeReader):
    """Reads from a joined host, straight into the note."""

    note: Note
    small: tuple[memoryview]

    def into(self, note: Note) -> None:
        self.note = note
        self.small = (note.chunk[:READ_BYTES],)

    def read(self, fd: int, most: int) -> bytes:
        place = self.small if most == READ_BYTES else (self.note.chunk[:most],)
        return self.note.read(os.readv(fd, place))


class JoinedMenu(Menu):
    """One joined host's view; its joiner knows which toolboxes it has opened."""

    def __init__(self, workbench: Workbench, opened: tuple[str, ...], tell: Tell) -> None:
        super().__init__(workbench, opened)
        self._tell = tell

    def opened(self, toolbox: str) -> bool:
        if toolbox not in self._opened:
            self._tell(words.OPENED, toolbox.encode())
        return super().opened(toolbox)
