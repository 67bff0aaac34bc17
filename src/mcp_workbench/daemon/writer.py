"""Writes to a joined host: each answer is noted as given before it leaves, and then can't be lost."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from itertools import islice

from mcp_workbench.daemon.basin import Basin
from mcp_workbench.daemon.note import Note
from mcp_workbench.wire import envelope
from mcp_workbench.wire.stdio import AT_ONCE, PipeWriter, grow_pipe

log = logging.getLogger(__name__)

BACKLOG = 2  # messages of the largest size wait for a host that does not read; then it is cut off
_QUESTION = b'{"jsonrpc":"2.0","id":'


class NotedWriter(PipeWriter):
    """Frames go into the basin, into the note, and on to the host, in this order.

    Without a basin they go to the host first: were we killed before they are noted, the host would be
    told twice, which hosts bear. The other way round one would wait for ever.
    """

    backlog: int

    def __init__(
        self, fd: int, lost: Callable[[], None], note: Note, largest: int, basin: Basin | None
    ) -> None:
        super().__init__(fd, lost)
        self._gone = lost
        self._note = note
        self._most = BACKLOG * largest
        self._basin = basin
        self._into = fd if basin is None else basin.inlet
        self._in_basin = 0  # bytes
        self._abouts: deque[bytes] = deque()  # of the frames that wait: whose answers they are
        if basin is not None:
            grow_pipe(basin.inlet)

    def send(self, frame: bytes, about: bytes = b"") -> None:
        answered = self._answered(frame, about) if about else b""
        if self._fd < 0 or self._waiting or self._turn.joining:
            if self._fd >= 0:
                self._abouts.append(answered)
            super().send(frame, about)
        else:
            self._send_now(frame, answered)
        if self.backlog > self._most:
            log.warning("a host does not read what it is told, and was cut off")
            self.abort()
            self._gone()

    def _answered(self, frame: bytes, about: bytes) -> bytes:
        """The request that has its answer in this frame, if it is one."""
        if envelope.answers(frame, about):
            return about
        if frame.startswith(_QUESTION):  # nobody is asked the same twice
            self._note.becomes(about, again=False)
        return b""

    def _send_now(self, frame: bytes, answered: bytes) -> None:
        try:
            sent = os.write(self._into, frame)
        except OSError:  # full, or gone
            sent = 0
        if sent == len(frame):
            if answered:
                self._note.ended(answered)
            if self._basin is not None:
                self._in_basin += sent
                self._pour()
            return
        self._waiting.append(memoryview(frame)[sent:] if sent else frame)
        self._abouts.append(answered)
        self.backlog += len(frame) - sent
        self._put(sent, [], full=False)
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
            sent = os.writev(self._into, frames)
        except BlockingIOError:
            sent = 0
        except OSError:  # nobody reads any more
            self._lose()
            return
        self.backlog -= sent
        taken, answered, full = sent, list[bytes](), False
        for frame in frames:
            if full := sent < len(frame):
                self._waiting[0] = memoryview(frame)[sent:] if sent else frame
                break
            sent -= len(self._waiting.popleft())
            if about := self._abouts.popleft():
                answered.append(about)
        self._put(taken, answered, full=full)

    def _put(self, count: int, answered: list[bytes], *, full: bool) -> None:
        """So many bytes were taken, and these requests have their answers with them."""
        if answered:
            self._note.all_ended(answered)
        is_part = bool(self._waiting) and isinstance(self._waiting[0], memoryview)
        self._note.partly(self._abouts[0] if is_part else None)
        if self._basin is not None:
            self._in_basin += count
            self._pour()
        elif full:
            self._block()

    def _pour(self) -> None:
        """On to the host, with what it takes now."""
        if self._basin is None or self._blocked:
            return
        try:
            while self._in_basin:
                self._in_basin -= os.splice(self._basin.outlet, self._fd, self._in_basin)
        except BlockingIOError:
            self._block()
        except OSError:  # nobody reads any more
            self._lose()

    def _roomy(self) -> None:
        self._unblock()
        self._pour()
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
        self._abouts.clear()
        if self._basin is not None:
            basin, self._basin, self._in_basin = self._basin, None, 0
            basin.close()
