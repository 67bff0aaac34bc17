"""Outbox: the pipe by which a response reaches a joined host exactly once, whatever is killed.

Writing to the host's own pipe and recording it would be two steps, and a kill between them would deliver
a response twice, or never. Moving bytes from pipe to pipe is one step, in the kernel: what is still in the
outbox when the daemon is killed, the attached process passes on.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.stdio import AT_ONCE, PipeWriter, grow_pipe

if TYPE_CHECKING:
    from mcp_workbench.daemon.crash_journal import CrashJournal, JournalContents

log = logging.getLogger(__name__)

BACKLOG = 2  # messages of the largest size wait for a host that does not read; then it is closed
_MOST = 1 << 20
_QUESTION = b'{"jsonrpc":"2.0","id":'


class Outbox(NamedTuple):
    """A pipe: frames enter at `inlet` and leave for the host at `outlet`."""

    outlet: int
    inlet: int

    def close(self) -> None:
        os.close(self.outlet)
        os.close(self.inlet)


def create_outbox() -> Outbox | None:
    """None if the system can't move bytes from pipe to pipe; a kill may then repeat a response."""
    if not hasattr(os, "splice"):
        return None
    outbox = Outbox(*os.pipe())
    for fd in outbox:
        os.set_blocking(fd, False)
    return outbox


def drain_outbox(outlet: int) -> bytes:
    """All bytes that have not reached the host; the daemon has ended."""
    pieces: list[bytes] = []
    try:
        while piece := os.read(outlet, _MOST):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


def undelivered(data: bytes, contents: JournalContents) -> tuple[bytes, bytes | None]:
    """What to send the host before anything else, and the request whose response it completes.

    Responses that are whole in `data` contain their ids. If one entered the outbox in parts, its start may
    have left already: either its end is in `data`, or it is lost.
    """
    end = data.rfind(b"\n") + 1
    if end < len(data):  # the start of a frame whose end is lost
        return (data[:end] if end else b"\n"), None
    if data:
        return data, contents.part
    return (b"" if contents.part is None else b"\n"), None


class OutboxWriter(PipeWriter):
    """Frames go into the outbox, into the journal, and on to the host, in this order.

    Without an outbox they go to the host first: if the daemon is killed before they are recorded, the
    host gets a second response, which hosts ignore. In the other order it might never get one.
    """

    backlog: int

    def __init__(
        self,
        fd: int,
        lost: Callable[[], None],
        journal: CrashJournal,
        largest: int,
        outbox: Outbox | None,
    ) -> None:
        super().__init__(fd, lost)
        self._gone = lost
        self._journal = journal
        self._most = BACKLOG * largest
        self._outbox = outbox
        self._inlet = fd if outbox is None else outbox.inlet
        self._in_outbox = 0  # bytes
        self._answered: deque[bytes] = (
            deque()
        )  # per waiting frame: the request it answers, or empty
        if outbox is not None:
            grow_pipe(outbox.inlet)

    def send(self, frame: bytes, about: bytes = b"") -> None:
        answered = self._answered_by(frame, about) if about else b""
        if self._fd < 0 or self._waiting or self._turn.joining:
            if self._fd >= 0:
                self._answered.append(answered)
            super().send(frame, about)
        else:
            self._send_now(frame, answered)
        if self.backlog > self._most:
            log.warning("a host does not read its messages; its connection was closed")
            self.abort()
            self._gone()

    def _answered_by(self, frame: bytes, about: bytes) -> bytes:
        """The request whose response this frame is, if it is one."""
        if jsonrpc.answers(frame, about):
            return about
        if frame.startswith(_QUESTION):  # a user is not asked the same question twice
            self._journal.set_repeatable(about, again=False)
        return b""

    def _send_now(self, frame: bytes, answered: bytes) -> None:
        try:
            sent = os.write(self._inlet, frame)
        except OSError:  # full, or gone
            sent = 0
        if sent == len(frame):
            if answered:
                self._journal.finished(answered)
            if self._outbox is not None:
                self._in_outbox += sent
                self._forward()
            return
        self._waiting.append(memoryview(frame)[sent:] if sent else frame)
        self._answered.append(answered)
        self.backlog += len(frame) - sent
        self._wrote(sent, [], full=False)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as the host's pipe takes it."""
        while self._waiting and not self._blocked and self._fd >= 0:
            self._write(tuple(islice(self._waiting, AT_ONCE)))
        if self._waiting or self._blocked:
            return
        self._press(high=False)
        if self._closing:
            self.abort()

    def _write(self, frames: tuple[bytes | memoryview, ...]) -> None:
        try:
            sent = os.writev(self._inlet, frames)
        except BlockingIOError:
            sent = 0
        except OSError:  # the host has closed its end
            self._lose()
            return
        self.backlog -= sent
        taken, answered, full = sent, list[bytes](), False
        for frame in frames:
            if full := sent < len(frame):
                self._waiting[0] = memoryview(frame)[sent:] if sent else frame
                break
            sent -= len(self._waiting.popleft())
            if id := self._answered.popleft():
                answered.append(id)
        self._wrote(taken, answered, full=full)

    def _wrote(self, count: int, answered: list[bytes], *, full: bool) -> None:
        """So many bytes were written, which complete the responses to these requests."""
        if answered:
            self._journal.all_finished(answered)
        is_part = bool(self._waiting) and isinstance(self._waiting[0], memoryview)
        self._journal.set_partial(self._answered[0] if is_part else None)
        if self._outbox is not None:
            self._in_outbox += count
            self._forward()
        elif full:
            self._block()

    def _forward(self) -> None:
        """Move what is in the outbox to the host, as far as its pipe takes it."""
        if self._outbox is None or self._blocked:
            return
        try:
            while self._in_outbox:
                self._in_outbox -= os.splice(self._outbox.outlet, self._fd, self._in_outbox)
        except BlockingIOError:
            self._block()
        except OSError:  # the host has closed its end
            self._lose()

    def _writable(self) -> None:
        self._unblock()
        self._forward()
        self.flush()

    def _lose(self) -> None:
        self.abort()
        self._loop.call_soon(self._lost)

    def close(self) -> None:
        self._closing = True
        if not self._waiting and not self._blocked:
            self.abort()

    def abort(self) -> None:
        super().abort()
        self._answered.clear()
        if self._outbox is not None:
            outbox, self._outbox, self._in_outbox = self._outbox, None, 0
            outbox.close()
