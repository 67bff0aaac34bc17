"""A joined host's pipes: like those of `serve`, with a note of what its joiner would need to know."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from mcp_workbench.daemon import words
from mcp_workbench.daemon.note import Note
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.reading import cancelled_id
from mcp_workbench.surface.session import HostSession
from mcp_workbench.surface.stdio_front import StdioFront
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope, Malformed
from mcp_workbench.wire.stdio import PipeReader, PipeWriter
from mcp_workbench.workbench import Workbench

log = logging.getLogger(__name__)

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
BACKLOG = 2  # messages of the largest size wait for a host that does not read; then it is cut off


class JoinedFront(StdioFront):
    """Reads a joined host's lines."""

    def __init__(
        self, session: HostSession, channel: NotedWriter, limit: int, note: Note, tell: Tell
    ) -> None:
        super().__init__(session, channel, limit)
        self._reader: PipeReader | None = None
        self._note = note
        self._tell = tell
        self._take = self._take_noted
        self._line = b""
        self._is_modern = False
        self.is_closing = False
        self.is_full = False  # a request was left in the note: nothing more may be read

    def listen(self, fd: int, ended: Callable[[], None]) -> PipeReader:
        """Read from the host. One that does not read what we say is not read from, either."""
        reader = self._reader = NotedReader(fd, self.receive, ended)
        reader.chunk = self._note.chunk
        return reader

    def hold(self, *, held: bool) -> None:
        if self._reader is not None:
            self._reader.hold(held=held or self.is_full)

    def receive(self, data: bytes) -> None:
        """Bytes from the host. While we close, a new request and all after it are left in the note."""
        note = self._note
        for count, line in enumerate(self._framer.feed(data), 1):
            if self.is_closing and _is_request(line):
                self.is_full = True
                self.hold(held=True)
                return
            self._line = line
            self._receive_line(line)
            note.looked_at(count)
        note.done(data)
        if (head := self._framer.take_overflow()) is not None:
            self._refuse_large(head)

    def _take_noted(self, message: Envelope) -> None:
        method = message.method
        id = bytes(message.id) if method else b""
        if id:
            self._note.begun(id, is_call=method == "tools/call")
            if method in KEPT and len(self._line) < KEPT_BYTES:
                self._tell(words.KEEP, self._line)
        self._session.receive(message)
        if method == "notifications/cancelled":
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

    chunk: memoryview

    def read(self, fd: int, most: int) -> bytes:
        count = os.readv(fd, (self.chunk[:most],))
        return bytes(self.chunk[:count])


class NotedWriter(PipeWriter):
    """Writes to a joined host. A request is over in the note when its answer has left.

    It is noted just after: were we killed between the two, the host is told twice, which hosts
    bear. The other way round one would wait for ever.
    """

    def __init__(self, fd: int, lost: Callable[[], None], note: Note, largest: int) -> None:
        super().__init__(fd, lost)
        self._gone = lost
        self._note = note
        self._most = BACKLOG * largest
        self._leaving: dict[bytes, bytes] = {}  # answers that wait for the pipe, by id
        self._is_mid_line = False

    def send(self, frame: bytes, about: bytes = b"") -> None:
        super().send(frame, about)
        if about and envelope.answers(frame, about):
            if self.backlog:
                self._leaving[about] = frame
            else:
                self._note.ended(about)
        if self.backlog > self._most:
            log.warning("a host does not read what it is told, and was cut off")
            self.abort()
            self._gone()

    def flush(self) -> None:
        super().flush()
        if self._leaving:
            self._note_left()
        if self._is_mid_line != self._blocked:
            # A pipe that takes no more has mostly taken a part; an empty line does no harm.
            self._is_mid_line = self._blocked
            self._note.mid_line(is_so=self._blocked)

    def _note_left(self) -> None:
        waiting = {id(p.obj if isinstance(p, memoryview) else p) for p in self._waiting}
        left = [about for about, frame in self._leaving.items() if id(frame) not in waiting]
        self._note.ended(*left)
        for about in left:
            del self._leaving[about]


class JoinedMenu(Menu):
    """One joined host's view; its joiner knows which toolboxes it has opened."""

    def __init__(self, workbench: Workbench, opened: tuple[str, ...], tell: Tell) -> None:
        super().__init__(workbench, opened)
        self._tell = tell

    def opened(self, toolbox: str) -> bool:
        if toolbox not in self._opened:
            self._tell(words.OPENED, toolbox.encode())
        return super().opened(toolbox)
