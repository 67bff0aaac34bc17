"""A joined host's pipes: like those of `serve`, with a note of what its joiner would need to know."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from mcp_workbench.core.call import TOOLS_CALL
from mcp_workbench.daemon import words
from mcp_workbench.daemon.note import CALL, OTHER, Note
from mcp_workbench.daemon.writer import NotedWriter
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import Interceptor
from mcp_workbench.gateway.views import View
from mcp_workbench.surface.calls import HostCall
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.parse import Message, UseToolRequest, cancelled_id
from mcp_workbench.surface.session import HostSession
from mcp_workbench.surface.stdio_front import StdioFront
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Malformed
from mcp_workbench.wire.stdio import READ_BYTES, PipeReader

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


class CrashJournal(Interceptor):
    """Notes of each call, before it is sent, whether its joiner may send it again should we be killed.

    What was not yet sent to a server may be sent by another process, and so may what its tool calls
    harmless (`core/again`). Every doubt is noted before it arises.
    """

    def __init__(self, note: Note) -> None:
        self._note = note

    def before(self, call: Call) -> None:
        if isinstance(call, HostCall) and call.route is not None:
            again = call.route.is_harmless and call.is_repeatable()
            self._note.becomes(call.id, again=again)


class JoinedFront(StdioFront):
    """Reads a joined host's lines."""

    def __init__(
        self, session: HostSession, channel: NotedWriter, limit: int, note: Note, tell: Tell
    ) -> None:
        super().__init__(session, channel, limit)
        self._line = b""  # what is read just now, and
        self._count = 0  # how many lines of what came at once were read with it
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
        note = self._note
        if self.is_full:
            return
        if not self._received:
            self._count = 0
        self._received += len(data)
        for line in self._framer.feed(data):
            if self.is_closing and _is_request(line):
                self.is_full = True
                self.hold(held=True)
                return
            self._count += 1
            self._receive_line(line)
            note.looked_at(self._count)
        whole = note.chunk_read or data
        if self._received < len(whole):
            note.looked_at(self._count)
        else:
            self._received = 0
            note.done(whole)
        if self._framer.overflow is not None:
            self._refuse_large()

    def _receive_line(self, line: bytes) -> None:
        self._line = line  # of a batch, too
        super()._receive_line(line)

    def _receive_batch(self, line: bytes) -> None:
        """All of its requests are noted before the first is answered."""
        with suppress(Malformed):
            for member in envelope.read_batch(line):
                with suppress(Malformed):
                    self._line = member
                    self._begin(envelope.decode_text(member))
        self._note.looked_at(self._count)
        super()._receive_batch(line)

    def _begin(self, message: Message) -> bool:
        """Note a request before anything is done for it: until it is sent, all may be done again.

        One whose id is in use is refused without that.
        """
        id = bytes(message.id) if message.method else b""
        if not id or id in self._session.under_way:
            return False
        kind = CALL if message.method == TOOLS_CALL else OTHER
        goes_on = b'"requestState"' in self._line  # with what is held here, and only here
        self._note.begun(id, self._line, kind, again=not goes_on)
        return True

    def _take_noted(self, message: Message) -> None:
        method = message.method
        if self._begin(message):
            line = self._line
            if method in KEPT and len(line) < KEPT_BYTES:
                self._tell(words.KEEP, line)
            self._note.looked_at(self._count)
        self._session.receive(message)
        if not isinstance(message, UseToolRequest) and method == "notifications/cancelled":
            self._note.looked_at(self._count)
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

    def __init__(self, view: View, opened: tuple[str, ...], tell: Tell) -> None:
        super().__init__(view, opened)
        self._tell = tell

    def opened(self, toolbox: str) -> bool:
        if toolbox not in self._opened:
            self._tell(words.OPENED, toolbox.encode())
        return super().opened(toolbox)
