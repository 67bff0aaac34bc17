"""Stdio transport: pipes read and written without blocking, and our own standard streams.

A reader calls back with the bytes that arrive; a writer queues what the pipe does not accept yet.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import ClassVar, Protocol
from weakref import WeakKeyDictionary

log = logging.getLogger(__name__)

PIPE_BYTES = 1 << 18  # requested size of a pipe: large results need fewer reads
READ_BYTES = 1 << 13  # enough for a usual message, and fast to allocate
JOIN_BYTES = 1024  # a chunk of this size or more may hold many messages
PART_BYTES = 1 << 11  # of many lines that are delivered between two looks at the clock
STEP = 0.02  # seconds after which other callbacks run before the rest is delivered
AT_ONCE = 256  # frames in one write; systems allow about a thousand
PRESSURE_BYTES = 1 << 20  # queued for a slow reader before its sources are paused
F_SETPIPE_SZ = (
    1031  # Linux; `fcntl` names it from Python 3.10 on, but only where the headers had it
)


class Channel(Protocol):
    """Takes frames. `send` never waits or raises; `backlog` counts the bytes that are not sent yet.

    `about` is the id of the request that the frame belongs to; a channel with one stream ignores it.
    """

    @property
    def backlog(self) -> int: ...
    def send(self, frame: bytes, about: bytes = b"") -> None: ...


class Flushed(Protocol):
    """Has something to write at the end of a turn."""

    def flush(self) -> None: ...


class JoinedWrites:
    """Joins the frames that are sent while a large chunk is processed into one write at its end.

    A small chunk holds one message, whose frame is written at once, so that its reader can work while
    we do our bookkeeping. All pipes of a loop share one.
    """

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, JoinedWrites]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.joining = False
        self.writers: list[Flushed] = []

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> JoinedWrites:
        return cls._of.setdefault(loop, cls())

    def join(self, loop: asyncio.AbstractEventLoop) -> None:
        """Join the frames that are sent until the loop's next step: much arrives at once."""
        if not self.joining:
            self.joining = True
            loop.call_soon(self.end)

    def end(self) -> None:
        self.joining = False
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.flush()


class PipeReader:
    """Calls `received` with what arrives in a pipe, and `ended` once at its end.

    A line of three bytes can cost as much as a long one, so many lines are delivered in parts.
    """

    part_bytes = PART_BYTES

    def __init__(
        self, fd: int, received: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        os.set_blocking(fd, False)
        grow_pipe(fd)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._turn = JoinedWrites.of(self._loop)
        self._received = received
        self._ended = ended
        self._most = READ_BYTES
        self._held = False
        self.waits = False  # what was read is not handled yet
        self._rest = b""  # was read, and is delivered after other callbacks have run
        self._read = self.read
        self._loop.add_reader(fd, self._readable)

    read = staticmethod(os.read)

    def hold(self, *, held: bool) -> None:
        """Pause or resume reading. While paused the pipe fills up, and its writer blocks."""
        self._held = held
        self._look()

    def wait(self, *, waits: bool) -> None:
        """The same for whoever receives, until what was read is handled: its end waits as well."""
        self.waits = waits
        self._look()

    def _look(self) -> None:
        """Watch the pipe, unless reading is paused or read bytes are still to be delivered."""
        if self._fd < 0:
            return
        if self._held or self.waits or self._rest:
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
            if not self._rest:
                self._look()


class PipeWriter:
    """Writes frames into a pipe, at once or at the end of the turn; queues what a full pipe refuses."""

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        grow_pipe(fd)
        self._fd = fd
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._turn = JoinedWrites.of(self._loop)
        self._waiting: deque[bytes | memoryview] = deque()
        self._blocked = False  # the pipe is full
        self._closing = False
        self._closed = asyncio.Event()
        self._pressure: Callable[[bool], None] | None = None
        self._pressing = False
        self._kept: tuple[bytes, ...] = ()  # not sent when the pipe was closed
        self.backlog = 0

    def unsent(self) -> tuple[bytes, ...]:
        """Return the frames of which no byte was written: the reader can't know of them."""
        if self._fd < 0:
            return self._kept
        return tuple(bytes(piece) for piece in self._waiting if _is_whole(piece))

    def take_back(self, start: bytes) -> bool:
        """Drop the queued frame that starts like this, if no byte of it was written. Returns whether one was."""
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
        """Queue what the pipe did not accept."""
        self._waiting.append(memoryview(frame)[sent:])
        self.backlog += len(frame) - sent
        self.flush()

    def on_pressure(self, act: Callable[[bool], None]) -> None:
        """Call `act` when the reader falls far behind, and when it has caught up."""
        self._pressure = act

    def close(self) -> None:
        """Close the pipe once everything is written."""
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
        """Close once everything is written or the time is up."""
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        self.abort()

    def flush(self) -> None:
        """Write the queue, as far as the pipe accepts it."""
        while self._waiting and not self._blocked and self._fd >= 0:
            self._write(tuple(islice(self._waiting, AT_ONCE)))
        if self._waiting:
            return
        self._press(high=False)
        if self._closing:
            self.abort()

    def _write(self, frames: tuple[bytes | memoryview, ...]) -> None:
        """Write the first frames of the queue; what the pipe does not accept stays there."""
        try:
            sent = os.writev(self._fd, frames)
        except BlockingIOError:
            sent = 0
        except OSError:  # the reader is gone
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
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
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
    """Return the end of the last line within this size, or else of the first line that ends at all."""
    if len(data) - start <= size:
        return len(data)
    end = data.rfind(b"\n", start, start + size) + 1 or data.find(b"\n", start + size) + 1
    return end or len(data)


def _is_whole(piece: bytes | memoryview) -> bool:
    return isinstance(piece, bytes) or piece.nbytes == memoryview(piece.obj).nbytes


def grow_pipe(fd: int) -> None:
    """Request a larger pipe; where the system refuses, it keeps its size."""
    try:
        import fcntl  # not on Windows

        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, OSError):
        return


# Our own standard streams


class FileWriter:
    """Writes frames into something other than a pipe: a file, a terminal, the null device."""

    backlog = 0

    def __init__(self, fd: int, lost: Callable[[], None]) -> None:
        self._fd = fd
        self._lost = lost

    def send(self, frame: bytes, about: bytes = b"") -> None:
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:  # a full disk
            log.error("can't write to the host: %s", error.strerror)  # noqa: TRY400
            self._lost()

    def on_pressure(self, act: Callable[[bool], None]) -> None:
        """Do nothing: writing blocks here, so nothing is queued."""

    async def flushed(self, seconds: float) -> None:
        """Close: everything has been written already."""
        os.close(self._fd)


def is_pipe(fd: int) -> bool:
    """Whether the loop can watch it: uvloop aborts on a file, and a terminal is shared."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def open_writer(fd: int, lost: Callable[[], None]) -> PipeWriter | FileWriter:
    """Return a channel into `fd`. `lost` is called when its reader is gone."""
    return PipeWriter(fd, lost) if is_pipe(fd) else FileWriter(fd, lost)


def pump_file(fd: int, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
    """Read something other than a pipe in a daemon thread."""
    loop = asyncio.get_running_loop()

    def pump() -> None:
        with suppress(RuntimeError):  # the loop is closed by now
            while data := _read_file(fd):
                loop.call_soon_threadsafe(received, data)
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=pump, name="standard input", daemon=True).start()


def _read_file(fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except OSError:  # a terminal that was hung up, a directory
        return b""


def claim_standard_streams() -> tuple[int, int]:
    """Reserve stdin and stdout for the protocol: a stray print goes to stderr, a child sees no input."""
    own_in, own_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a stderr
        os.dup2(0, 1)
    return own_in, own_out
