"""The local socket: who comes, whether it is our own user, and what is wished for."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from mcp_workbench.daemon import words
from mcp_workbench.daemon.door import peer_of
from mcp_workbench.daemon.folder import Place, socket_address
from mcp_workbench.daemon.words import BadFrame, Frames, packed
from mcp_workbench.timing import pause

BACKLOG = 128  # who may stand before the door at once
PAUSE = pause(1.0)  # seconds until somebody is let in again, where there was no descriptor left
_MOST = 1 << 16
_FDS = 2  # stdin and stdout
MOST_UNSENT = 8 << 20  # bytes for one that does not listen; then it is left


class Host(Protocol):
    """A joined host, as far as its joiner may speak of it."""

    def left(self) -> None: ...
    def interrupted(self) -> None: ...
    def gone(self) -> None: ...


class Keeper(Protocol):
    """Who decides what becomes of those who come."""

    def wished(self, visitor: Visitor, wish: bytes, fields: list[bytes]) -> None: ...
    def handed(self, visitor: Visitor, fds: list[int]) -> None: ...
    def reload(self) -> None: ...


class Visitor:
    """One connection. Nothing in it waits."""

    def __init__(self, connection: socket.socket, keeper: Keeper, pid: int) -> None:
        connection.settimeout(0)
        self.pid = pid
        self.host: Host | None = None  # once it has joined
        self._connection = connection
        self._keeper = keeper
        self._frames = Frames()
        self._unsent = bytearray()
        self._greeted = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._readable)

    def tell(self, *fields: bytes, fds: Sequence[int] = ()) -> None:
        """Say something. Who does not listen, for what little there is to hear, is left."""
        if self._connection.fileno() < 0:
            return
        frame = packed(*fields)
        try:
            sent = socket.send_fds(self._connection, [frame], fds) if fds else 0
        except OSError:
            self._lost()
            return
        if not self._unsent and len(frame) > sent:
            self._loop.add_writer(self._connection.fileno(), self._writable)
        self._unsent += frame[sent:]
        self._writable()

    def _writable(self) -> None:
        """Send what is waiting. A report may be larger than the socket's buffer; who asked for it reads."""
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            if len(self._unsent) > MOST_UNSENT:
                self._lost()
            return
        except OSError:
            self._lost()
            return
        if self._connection.fileno() >= 0:
            self._loop.remove_writer(self._connection.fileno())

    @property
    def is_closed(self) -> bool:
        return self._connection.fileno() < 0

    def close(self) -> None:
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection.fileno())
            self._loop.remove_writer(self._connection.fileno())
            self._connection.close()

    def _readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._connection, _MOST, _FDS)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        for fd in fds:
            os.set_inheritable(fd, False)  # noqa: FBT003 - takes no name
        try:
            frames = self._frames.feed(data)
        except BadFrame:
            data, frames = b"", []
        if fds:
            self._keeper.handed(self, fds)
        for frame in frames:
            self._said(frame)
        if not data:
            self._lost()

    def _lost(self) -> None:
        self.close()
        if self.host is not None:
            self.host.gone()

    def _said(self, frame: list[bytes]) -> None:
        if not self._greeted:
            self._greeted = True
            if frame[0] != words.FORMAT or len(frame) == 1:
                self.tell(words.REFUSED, words.LOUDLY, b"it is of another version")
            else:
                self._keeper.wished(self, frame[1], frame[2:])
            return
        match frame[0]:
            case words.ASKED if self.host is not None:
                self.host.left()
            case words.INTERRUPTED if self.host is not None:
                self.host.interrupted()
            case words.PING:
                self.tell(words.PONG)
            case words.RELOAD:
                self._keeper.reload()
            case _:
                pass


class Gate:
    """The socket that they come to."""

    def __init__(self, listener: socket.socket, keeper: Keeper) -> None:
        self._listener = listener
        self._keeper = keeper
        self._visitors: set[Visitor] = set()
        self._loop = asyncio.get_running_loop()
        self._open()

    def _open(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._let_in)

    def _let_in(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # it has left again
            return
        except OSError:  # there is no descriptor left; the queue is not looked at all the time
            self._loop.remove_reader(self._listener.fileno())
            self._loop.call_later(PAUSE, self._open)
            return
        pid, user = peer_of(connection)
        if user != os.geteuid():
            connection.close()
            return
        self._visitors = {one for one in self._visitors if not one.is_closed}
        self._visitors.add(Visitor(connection, self._keeper, pid))

    def close(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for visitor in self._visitors:
            visitor.close()


@asynccontextmanager
async def open_gate(place: Place, keeper: Keeper) -> AsyncGenerator[None]:
    """Let visitors in for the length of the block. Whoever holds the lock may take the place."""
    gate = Gate(_listening(place), keeper)
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(place.socket)  # noqa: PTH108
        gate.close()


def _listening(place: Place) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(place.socket)  # noqa: PTH108 - what a crash has left
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address, folder = socket_address(place.socket)
    before = os.umask(0o177)  # of the socket; the folder lets nobody in anyway
    try:
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
        if folder >= 0:
            os.close(folder)
    listener.settimeout(0)
    listener.listen(BACKLOG)
    return listener
