"""A session's messages on stdio: lines, in their order, whatever time one of them takes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

from mcp_workbench.protocol.handshake import BATCHES
from mcp_workbench.server import parse
from mcp_workbench.server.parse import Message
from mcp_workbench.server.session import HostSession
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.json_text import HugeLine, SteppedFramer
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.long_steps import add_long_step
from mcp_workbench.transport.stdio import STEP, Channel, PipeReader, is_pipe, pump_file

log = logging.getLogger(__name__)


class StdioFront:
    """Reads lines for a session; refuses what is no message.

    A message above 4 MiB takes several steps of the loop. What arrives meanwhile waits behind it.
    """

    def __init__(self, session: HostSession, channel: Channel, message_bytes: int) -> None:
        self._session = session
        self._take = session.receive
        self._channel = channel
        self._framer = SteppedFramer(message_bytes, self._begin_huge)
        self._reader: PipeReader | None = None
        self._behind: deque[bytes] | None = None  # bytes behind a huge message that is being read
        self._steps: Iterator[None] | None = None  # of that message
        self._all_read: asyncio.Event | None = None

    def listen(self, fd: int, ended: Callable[[], None]) -> PipeReader | None:
        """Read from the host; call `ended` at the end of its input. Returns what reads from a pipe."""
        if is_pipe(fd):
            self._reader = PipeReader(fd, self.receive, ended)
        else:
            pump_file(fd, self.receive, ended)
        return self._reader

    def receive(self, data: bytes) -> None:
        """Bytes from the host."""
        if self._behind is not None:
            self._behind.append(data)
            return
        for line in self._framer.feed(data):  # as `_receive_line`, without a call for each line
            try:
                message = parse.read(line)
            except Malformed as error:
                self._malformed(line, error)
            else:
                self._take(message)
        if self._framer.overflow is not None:
            self._refuse_large()

    def _refuse_large(self) -> None:
        message = "the message is too large (limits.messageBytes)"
        id = jsonrpc.salvaged_id(self._framer.take_overflow() or b"")
        self._refuse(Malformed(jsonrpc.INVALID_REQUEST, message, id))

    def _receive_line(self, line: bytes) -> None:
        try:
            message = parse.read(line)
        except Malformed as error:
            self._malformed(line, error)
        else:
            self._take(message)

    def _malformed(self, line: bytes, error: Malformed) -> None:
        if self._session.era.revision == BATCHES and jsonrpc.is_batch(line):
            self._receive_batch(line)
        else:
            self._refuse(error)

    def _receive_batch(self, line: bytes) -> None:
        try:
            members = jsonrpc.read_batch(line)
        except Malformed as error:
            self._refuse(error)
            return
        for member in members:
            if not jsonrpc.is_batch(member):
                self._receive_line(member)

    def _refuse(self, error: Malformed) -> None:
        refusal = jsonrpc.error_object(error.code, str(error))
        self._channel.send(jsonrpc.refusal(error.id, refusal))

    # Huge messages

    async def all_read(self) -> None:
        """Wait until a huge message that has arrived is handled, and what has arrived behind it."""
        if self._behind is not None:
            self._all_read = self._all_read or asyncio.Event()
            await self._all_read.wait()

    def close(self) -> None:
        """Handle nothing more of what has arrived."""
        self._steps = None
        if self._behind is not None:
            self._behind.clear()

    def _begin_huge(self, huge: HugeLine) -> None:
        self._steps = self._huge_message(huge)
        self._behind = deque((huge.behind,))
        self._hold_reader()
        add_long_step(self._next_step)

    def _hold_reader(self) -> None:
        """Read no more from a pipe while something waits, so that little does."""
        if self._reader is not None:
            self._reader.hold(held=self._is_held)

    @property
    def _is_held(self) -> bool:
        return self._behind is not None

    def _next_step(self) -> None:
        """Go on with a huge message, or with what waits behind it."""
        if self._steps is not None:
            self._read_on(self._steps)
            add_long_step(self._next_step)
            return
        behind, self._behind = self._behind or deque(), None
        try:
            self._receive_waiting(behind)
        finally:
            self._wait_on(behind)

    def _receive_waiting(self, behind: deque[bytes]) -> None:
        """Receive what has waited, up to the next huge message, or as much as there is time for."""
        until = time.perf_counter() + STEP
        while behind and self._behind is None and time.perf_counter() < until:
            self.receive(behind.popleft())

    def _wait_on(self, behind: deque[bytes]) -> None:
        if self._behind is not None:  # behind the next huge message
            self._behind.extend(behind)
        elif behind:
            self._behind = behind
            add_long_step(self._next_step)
        elif self._all_read is not None:
            self._all_read.set()
            self._all_read = None
        self._hold_reader()

    def _read_on(self, steps: Iterator[None]) -> None:
        try:
            next(steps)
        except StopIteration:
            self._steps = None
        except Exception:  # a bug of ours costs one message, not the session
            log.exception("a host's message failed")
            self._steps = None

    def _huge_message(self, huge: HugeLine) -> Iterator[None]:
        line = yield from huge.joined()
        if line.isspace():
            return
        yield
        try:
            read = yield from parse.read_in_steps(line)
        except Malformed as error:
            read = error.with_traceback(None)  # which would keep the line until it is collected
        yield
        self._receive_huge(line, read)

    def _receive_huge(self, line: bytes, read: Message | Malformed) -> None:
        if isinstance(read, Malformed):
            self._malformed(line, read)
        else:
            self._take(read)
