"""A joined host in the daemon: its session on its own pipes, recorded in its crash journal."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

from mcp_workbench.app import DRAIN, FLUSH, HURRIED_DRAIN, INTERRUPTED
from mcp_workbench.core.call import TOOLS_CALL
from mcp_workbench.daemon import control_protocol as protocol
from mcp_workbench.daemon.crash_journal import CALL, OTHER, CrashJournal, JournalInterceptor
from mcp_workbench.daemon.outbox import Outbox, OutboxWriter
from mcp_workbench.gateway.views import View
from mcp_workbench.server.parse import Message, UseToolRequest, cancelled_id
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.stdio import StdioFront
from mcp_workbench.server.tools import ToolView
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.stdio import READ_BYTES, PipeReader
from mcp_workbench.transport.tasks import TaskScope, task_scope

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


class JoinedHost:
    """A host that shares the daemon's servers, from its arrival to its end."""

    def __init__(
        self,
        pid: int,
        toolboxes: tuple[str, ...],
        journal: CrashJournal,
        outbox: Outbox | None,
        notify: Notify,
    ) -> None:
        self.pid = pid  # of its attached process
        self.toolboxes = toolboxes
        self.since = time.monotonic()
        self._journal = journal
        self._outbox = outbox
        self._notify = notify
        self._over = asyncio.Event()
        self._at_once = asyncio.Event()
        self._patience = DRAIN
        self._status = 0
        self._is_released = False
        self.session: HostSession | None = None

    def discard(self) -> None:
        """Free what was prepared for it: its pipes have not arrived, and will not be served."""
        if self._outbox is not None:
            self._outbox.close()

    # Reasons to end

    def left(self) -> None:
        """The host has closed its output, or its attached process received SIGTERM."""
        self._over.set()

    def interrupted(self) -> None:
        """Its attached process received SIGINT."""
        self._status, self._patience = INTERRUPTED, HURRIED_DRAIN
        self._over.set()

    def gone(self) -> None:
        """The host or its attached process has disappeared: nothing is awaited."""
        self._at_once.set()
        self._over.set()

    def release(self, seconds: float) -> None:
        """The daemon stops: the attached process continues once the calls in flight have finished."""
        self._is_released, self._patience = True, seconds
        self._over.set()

    @property
    def under_way(self) -> int:
        return 0 if self.session is None else len(self.session.under_way)

    # Its session

    async def serve(self, view: View, own_in: int, own_out: int) -> None:
        """Serve the host until it ends, then close its pipes."""
        if self.toolboxes:
            view = view.narrowed(frozenset(self.toolboxes).__contains__)
        view = view.intercepted(JournalInterceptor(self._journal))
        largest = view.snapshot.limits.message_bytes
        channel = OutboxWriter(own_out, self.gone, self._journal, largest, self._outbox)
        try:
            async with task_scope() as requests:
                await self._run_session(view, channel, own_in, requests)
            await channel.flushed(FLUSH)
        finally:
            channel.abort()
        if not self._is_released:
            self._notify(protocol.ENDED, b"%d" % self._status)

    async def _run_session(
        self, view: View, channel: OutboxWriter, own_in: int, requests: TaskScope
    ) -> None:
        menu = JoinedMenu(view, self.toolboxes, self._notify)
        asked = "by its own servers"
        session = HostSession(view, channel, requests, menu, asked=asked)
        self.session = session
        limit = view.snapshot.limits.message_bytes
        front = JoinedFront(session, channel, limit, self._journal, self._notify)
        reader = front.listen(own_in, self.left)
        # Only this host is held back while it does not read: its servers have other hosts.
        channel.on_pressure(lambda held: front.hold(held=held))
        try:
            await self._over.wait()
            if self._is_released:
                front.is_closing = True
            else:
                session.drain()
            await self._drain(session)
        finally:
            reader.close()
            session.close()

    async def _drain(self, session: HostSession) -> None:
        session.when_idle(self._at_once.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._at_once.wait()


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
        self._reader: PipeReader | None = None
        self._journal = journal
        self._notify = notify
        self._take = self._take_recorded
        self._is_modern = False
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
        if self._reader is not None:
            self._reader.hold(held=held or self.is_stopped)

    def receive(self, data: bytes) -> None:
        """Bytes from the host. While closing, a new request and all after it stay in the journal.

        `data` is a whole chunk, or a part of one: then other callbacks run before the next part, and
        requests of this part may be answered by then.
        """
        journal = self._journal
        if self.is_stopped:
            return
        if not self._received:
            self._count = 0
        self._received += len(data)
        for line in self._framer.feed(data):
            if self.is_closing and _is_request(line):
                self.is_stopped = True
                self.hold(held=True)
                return
            self._count += 1
            self._receive_line(line)
            journal.lines_handled(self._count)
        chunk = journal.chunk_read or data
        if self._received < len(chunk):
            journal.lines_handled(self._count)
        else:
            self._received = 0
            journal.chunk_handled(chunk)
        if self._framer.overflow is not None:
            self._refuse_large()

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
                self._notify(protocol.KEEP, line)
            self._journal.lines_handled(self._count)
        self._session.receive(message)
        if not isinstance(message, UseToolRequest) and method == "notifications/cancelled":
            self._journal.lines_handled(self._count)
            self._journal.finished(cancelled_id(message.params))
        if self._session.era.modern and not self._is_modern:
            self._is_modern = True
            self._notify(protocol.MODERN)


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


class JoinedMenu(ToolView):
    """A joined host's tools; its attached process is notified which toolboxes are open."""

    def __init__(self, view: View, opened: tuple[str, ...], notify: Notify) -> None:
        super().__init__(view, opened)
        self._notify = notify

    def opened(self, toolbox: str) -> bool:
        if toolbox not in self._opened:
            self._notify(protocol.OPENED, toolbox.encode())
        return super().opened(toolbox)
