"""Pipes: readers that hand on what arrives, writers that never wait."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import ClassVar, Protocol
from weakref import WeakKeyDictionary

PIPE_BYTES = 1 << 18  # what pipes are grown to: large results need fewer turns
READ_BYTES = 1 << 13  # for a usual message: a buffer that is quick to have
JOIN_BYTES = 1024  # a chunk from here on may hold many messages
PART_BYTES = 1 << 11  # of many lines that are handed on before we look at the time
STEP = 0.02  # seconds after which others have a turn before the rest of what was read
AT_ONCE = 256  # frames in one write; systems allow about a thousand
PRESSURE_BYTES = 1 << 20  # waiting for a slow reader before those who feed it are held
F_SETPIPE_SZ = (
    1031  # Linux; `fcntl` names it from Python 3.10 on, but only where the headers had it
)


class Channel(Protocol):
    """Takes frames. `send` never waits, raises or settles anything; what can't leave yet is the backlog.

    `about` is the id of the request that the frame belongs to; a channel with one stream ignores it.
    """

    @property
    def backlog(self) -> int: ...
    def send(self, frame: bytes, about: bytes = b"") -> None: ...


class _Turn:
    """What is sent while a large chunk is worked through leaves together, at its end.

    A small chunk holds one message, whose frame leaves at once: its reader works while we keep our
    books. All pipes of a loop share its turn.
    """

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turn]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.joining = False
        self.writers: list[PipeWriter] = []

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Turn:
        return cls._of.setdefault(loop, cls())

    def end(self) -> None:
        self.joining = False
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.flush()


def join_writes(loop: asyncio.AbstractEventLoop) -> None:
    """Let frames that are sent until the loop's next step leave together: many hosts ask at once."""
    turn = _Turn.of(loop)
    if not turn.joining:
        turn.joining = True
        loop.call_soon(turn.end)


class PipeReader:
    """Hands on what arrives in a pipe, and says once when it ends.

    A line of three bytes can cost as much as a long one, so many lines are handed on in parts.
    """

    part_bytes = PART_BYTES

    def __init__(
        self, fd: int, received: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        os.set_blocking(fd, False)
        grow_pipe(fd)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._turn = _Turn.of(self._loop)
        self._received = received
        self._ended = ended
        self._most = READ_BYTES
        self._held = False
        self._rest = b""  # was read, and is handed on when others have had their turn
        self._read = self.read
        self._loop.add_reader(fd, self._readable)

    read = staticmethod(os.read)

    def hold(self, *, held: bool) -> None:
        """Stop reading, or go on: the pipe fills up, and who writes into it waits."""
        self._held = held
        self._look()

    def _look(self) -> None:
        """Wait for the pipe to have something, or leave it alone."""
        if self._fd < 0:
            return
        if self._held or self._rest:
            self._loop.remove_reader(self._fd)
        else:
            self._loop.add_reader(self._fd, self._readable)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._rest = b""

    def _readable(self) -> None:
        try:
            data = self._read(self._fd, self._most)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            # A full read is the middle of something large.
            self._most = PIPE_BYTES if len(data) >= READ_BYTES else READ_BYTES
            if len(data) < JOIN_BYTES:
                self._received(data)
            else:
                self._receive_many(data)
        else:
            self.close()
            self._ended()

    def _receive_many(self, data: bytes) -> None:
        self._turn.joining = True
        done, until = 0, time.perf_counter() + STEP
        try:
            while done < len(data) and time.perf_counter() < until:
                start, done = done, _end_of_part(data, done, self.part_bytes)
                self._received(data[start:done])
        finally:
            self._turn.end()
        if done < len(data) and self._fd >= 0:
            self._rest = data[done:]
            self._loop.call_soon(self._receive_rest)
            self._look()

    def _receive_rest(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:  # it was not closed meanwhile
            self._receive_many(rest)
            self._look()


class PipeWriter:
    """Frames into a pipe, at once or at the end of the turn. What a full pipe can't take waits here."""

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        grow_pipe(fd)
        self._fd = fd
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._turn = _Turn.of(self._loop)
        self._waiting: deque[bytes | memoryview] = deque()
        self._blocked = False  # the pipe is full
        self._closing = False
        self._closed = asyncio.Event()
        self._pressure: Callable[[bool], None] | None = None
        self._pressing = False
        self._kept: tuple[bytes, ...] = ()  # what had not left when the pipe was closed
        self.backlog = 0

    def unsent(self) -> tuple[bytes, ...]:
        """The frames of which no byte has left: whoever reads the pipe can't know of them."""
        if self._fd < 0:
            return self._kept
        return tuple(bytes(piece) for piece in self._waiting if _is_whole(piece))

    def take_back(self, start: bytes) -> bool:
        """Drop the frame that starts like this, if no byte of it has left; was there one?"""
        for index, piece in enumerate(self._waiting):
            if _is_whole(piece) and piece[: len(start)] == start:
                self.backlog -= len(piece)
                del self._waiting[index]
                return True
        return False

    def send(self, frame: bytes, about: bytes = b"") -> None:
        if self._fd < 0:
            if len(self._kept) < AT_ONCE and len(frame) < READ_BYTES:  # until the end is noticed
                self._kept += (frame,)
            return
        if not self._waiting:
            if not self._turn.joining:
                try:
                    sent = os.write(self._fd, frame)
                except OSError:  # full, or gone
                    sent = 0
                if sent < len(frame):
                    self._keep(frame, sent)
                return
            self._turn.writers.append(self)
        self._waiting.append(frame)
        self.backlog += len(frame)
        if self._blocked and self.backlog > PRESSURE_BYTES:
            self._press(high=True)

    def _keep(self, frame: bytes, sent: int) -> None:
        """What the pipe did not take."""
        self._waiting.append(memoryview(frame)[sent:])
        self.backlog += len(frame) - sent
        self.flush()

    def on_pressure(self, act: Callable[[bool], None]) -> None:
        """Be told when the reader falls far behind, and when it has caught up."""
        self._pressure = act

    def close(self) -> None:
        """Let everything leave, then close the pipe."""
        self._closing = True
        if not self._waiting:
            self.abort()

    def abort(self) -> None:
        """Close the pipe now."""
        if self._fd >= 0:
            self._kept = self.unsent()
            self._unblock()
            os.close(self._fd)
            self._fd = -1
            self._waiting.clear()
            self.backlog = 0
            self._closed.set()

    async def flushed(self, seconds: float) -> None:
        """Close, once everything has left or the time is up."""
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        self.abort()

    def flush(self) -> None:
        """Write what waits, as far as the pipe takes it."""
        while self._waiting and not self._blocked and self._fd >= 0:
            self._write(tuple(islice(self._waiting, AT_ONCE)))
        if self._waiting:
            return
        self._press(high=False)
        if self._closing:
            self.abort()

    def _write(self, frames: tuple[bytes | memoryview, ...]) -> None:
        """Write these, which are first in line; what the pipe can't take stays there."""
        try:
            sent = os.writev(self._fd, frames)
        except BlockingIOError:
            sent = 0
        except OSError:  # nobody reads any more
            self.abort()
            self._loop.call_soon(self._lost)
            return
        self.backlog -= sent
        for frame in frames:
            if sent < len(frame):
                self._waiting[0] = memoryview(frame)[sent:]
                self._block()
                return
            sent -= len(self._waiting.popleft())

    def _block(self) -> None:
        if not self._blocked:
            self._blocked = True
            self._loop.add_writer(self._fd, self._roomy)

    def _roomy(self) -> None:
        self._unblock()
        self.flush()

    def _unblock(self) -> None:
        if self._blocked:
            self._blocked = False
            self._loop.remove_writer(self._fd)

    def _press(self, *, high: bool) -> None:
        if self._pressure is not None and high != self._pressing:
            self._pressing = high
            self._pressure(high)


def _end_of_part(data: bytes, start: int, size: int) -> int:
    """Behind the last line that ends within this size, or else behind the first that ends at all."""
    if len(data) - start <= size:
        return len(data)
    end = data.rfind(b"\n", start, start + size) + 1 or data.find(b"\n", start + size) + 1
    return end or len(data)


def _is_whole(piece: bytes | memoryview) -> bool:
    return isinstance(piece, bytes) or piece.nbytes == memoryview(piece.obj).nbytes


def grow_pipe(fd: int) -> None:
    """Ask for a larger pipe; a system that can't, or won't, keeps its own size."""
    try:
        import fcntl  # not on Windows

        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, OSError):
        return
