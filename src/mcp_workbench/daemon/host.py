"""One joined host in the shared workbench: its pipes are ours until it leaves, or we do."""

from __future__ import annotations

import asyncio
import contextlib
import time

from mcp_workbench.app import DRAIN, FLUSH, HURRIED_DRAIN, INTERRUPTED
from mcp_workbench.daemon import words
from mcp_workbench.daemon.basin import Basin
from mcp_workbench.daemon.front import CrashJournal, JoinedFront, JoinedMenu, Tell
from mcp_workbench.daemon.note import Note
from mcp_workbench.daemon.writer import NotedWriter
from mcp_workbench.gateway.views import View
from mcp_workbench.surface.session import HostSession
from mcp_workbench.wire.tasks import TaskScope, task_scope


class JoinedHost:
    """A host that shares our servers."""

    def __init__(
        self,
        pid: int,
        toolboxes: tuple[str, ...],
        note: Note,
        basin: Basin | None,
        tell: Tell,
    ) -> None:
        self.pid = pid  # of its joiner
        self.toolboxes = toolboxes
        self.since = time.monotonic()
        self._note = note
        self._basin = basin
        self._tell = tell
        self._over = asyncio.Event()
        self._at_once = asyncio.Event()
        self._patience = DRAIN
        self._status = 0
        self._is_handed_back = False
        self.session: HostSession | None = None

    def forget(self) -> None:
        """It will not be served."""
        if self._basin is not None:
            self._basin.close()

    # Why it ends

    def left(self) -> None:
        """The host has closed our input, or its joiner was asked to end."""
        self._over.set()

    def interrupted(self) -> None:
        self._status, self._patience = INTERRUPTED, HURRIED_DRAIN
        self._over.set()

    def gone(self) -> None:
        """Nobody is there any more."""
        self._at_once.set()
        self._over.set()

    def hand_back(self, seconds: float) -> None:
        """We end: its joiner goes on with it as soon as what is under way has ended."""
        self._is_handed_back, self._patience = True, seconds
        self._over.set()

    @property
    def under_way(self) -> int:
        return 0 if self.session is None else len(self.session.under_way)

    # Its life

    async def serve(self, view: View, own_in: int, own_out: int) -> None:
        """Serve it to its end; the pipes are closed then."""
        if self.toolboxes:
            view = view.narrowed(frozenset(self.toolboxes).__contains__)
        view = view.intercepted(CrashJournal(self._note))
        largest = view.snapshot.limits.message_bytes
        channel = NotedWriter(own_out, self.gone, self._note, largest, self._basin)
        try:
            async with task_scope() as requests:
                await self._converse(view, channel, own_in, requests)
            await channel.flushed(FLUSH)
        finally:
            channel.abort()
        if not self._is_handed_back:
            self._tell(words.ENDED, b"%d" % self._status)

    async def _converse(
        self, view: View, channel: NotedWriter, own_in: int, requests: TaskScope
    ) -> None:
        menu = JoinedMenu(view, self.toolboxes, self._tell)
        asked = "by its own servers"
        session = HostSession(view, channel, requests, menu, asked=asked)
        self.session = session
        limit = view.snapshot.limits.message_bytes
        front = JoinedFront(session, channel, limit, self._note, self._tell)
        reader = front.listen(own_in, self.left)
        # The servers go on while it does not read: they have other hosts.
        channel.on_pressure(lambda held: front.hold(held=held))
        try:
            await self._over.wait()
            if self._is_handed_back:
                front.is_closing = True
            else:
                session.drain()
            await self._drain(session)
        finally:
            reader.close()
            session.close()

    async def _drain(self, session: HostSession) -> None:
        session.when_idle(self._at_once.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._at_once.wait()
