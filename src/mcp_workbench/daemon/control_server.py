"""Control server: the daemon's local socket, whose two ends belong to one user."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from mcp_workbench.daemon import control_protocol as protocol
from mcp_workbench.daemon.control_client import peer_credentials
from mcp_workbench.daemon.control_protocol import BadFrame, FrameReader, pack
from mcp_workbench.daemon.paths import DaemonPaths, socket_address
from mcp_workbench.timing import pause

BACKLOG = 128  # connections that wait to be accepted
PAUSE = pause(1.0)  # seconds without accepting, after the process ran out of descriptors
_MOST = 1 << 16
_FDS = 2  # stdin and stdout
MOST_UNSENT = 8 << 20  # bytes for a client that does not read; then its connection is closed


class AttachedHost(Protocol):
    """The host behind a connection, as far as its attached process controls it."""

    def left(self) -> None: ...
    def interrupted(self) -> None: ...
    def gone(self) -> None: ...


class RequestHandler(Protocol):
    """Decides what to do with requests."""

    def handle(
        self, connection: ControlConnection, request: bytes, fields: list[bytes]
    ) -> None: ...
    def receive_pipes(self, connection: ControlConnection, fds: list[int]) -> None: ...
    def reload(self) -> None: ...


class ControlConnection:
    """One client of the socket. Nothing in it blocks."""

    def __init__(self, connection: socket.socket, handler: RequestHandler, pid: int) -> None:
        connection.settimeout(0)
        self.pid = pid
        self.host: AttachedHost | None = None  # once its pipes are here
        self._socket = connection
        self._handler = handler
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._has_requested = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._readable)

    def send(self, *fields: bytes, fds: Sequence[int] = ()) -> None:
        """Send one frame. A client that does not read, for the little that it is sent, is dropped."""
        if self.is_closed:
            return
        frame = pack(*fields)
        try:
            sent = socket.send_fds(self._socket, [frame], fds) if fds else 0
        except OSError:
            self._lost()
            return
        if not self._unsent and len(frame) > sent:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        self._unsent += frame[sent:]
        self._writable()

    def _writable(self) -> None:
        """Send what is waiting; a report may be larger than the socket's buffer."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            if len(self._unsent) > MOST_UNSENT:
                self._lost()
            return
        except OSError:
            self._lost()
            return
        if not self.is_closed:
            self._loop.remove_writer(self._socket.fileno())

    @property
    def is_closed(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        if not self.is_closed:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()

    def _readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, _MOST, _FDS)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        for fd in fds:
            os.set_inheritable(fd, False)  # noqa: FBT003 - takes no name
        try:
            frames = self._reader.feed(data)
        except BadFrame:
            data, frames = b"", []
        if fds:
            self._handler.receive_pipes(self, fds)
        for frame in frames:
            self._receive(frame)
        if not data:
            self._lost()

    def _lost(self) -> None:
        self.close()
        if self.host is not None:
            self.host.gone()

    def _receive(self, frame: list[bytes]) -> None:
        if not self._has_requested:
            self._has_requested = True
            if frame[0] != protocol.FORMAT or len(frame) == 1:
                self.send(protocol.REFUSED, protocol.LOUDLY, b"it is of another version")
            else:
                self._handler.handle(self, frame[1], frame[2:])
            return
        match frame[0]:
            case protocol.ASKED if self.host is not None:
                self.host.left()
            case protocol.INTERRUPTED if self.host is not None:
                self.host.interrupted()
            case protocol.PING:
                self.send(protocol.PONG)
            case protocol.RELOAD:
                self._handler.reload()
            case _:
                pass


class ControlServer:
    """Accepts connections of our own user."""

    def __init__(self, listener: socket.socket, handler: RequestHandler) -> None:
        self._listener = listener
        self._handler = handler
        self._connections: set[ControlConnection] = set()
        self._loop = asyncio.get_running_loop()
        self._listen()

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the client has closed it again
            return
        except OSError:  # no descriptor is free: do not spin on a queue that can't be emptied
            self._loop.remove_reader(self._listener.fileno())
            self._loop.call_later(PAUSE, self._listen)
            return
        pid, user = peer_credentials(connection)
        if user != os.geteuid():
            connection.close()
            return
        self._connections = {client for client in self._connections if not client.is_closed}
        self._connections.add(ControlConnection(connection, self._handler, pid))

    def close(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for connection in self._connections:
            connection.close()


@asynccontextmanager
async def control_server(paths: DaemonPaths, handler: RequestHandler) -> AsyncGenerator[None]:
    """Accept clients for the length of the block. The caller holds the lock, so it may replace the socket."""
    server = ControlServer(_listener(paths), handler)
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(paths.socket)  # noqa: PTH108
        server.close()


def _listener(paths: DaemonPaths) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(paths.socket)  # noqa: PTH108 - left by a crash
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address, folder = socket_address(paths.socket)
    before = os.umask(0o177)  # for the socket; the folder is closed to others anyway
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
