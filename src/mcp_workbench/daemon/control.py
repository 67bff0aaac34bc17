"""Control socket of the daemon: its protocol, the client, and the server.

Both ends belong to one user. A frame is a length (four bytes, big-endian) and NUL-separated fields, so an
attached process needs no JSON decoder. A client's first frame starts with the format version.

Every attached process loads this module, so it imports neither asyncio nor `typing`.
"""

from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager, suppress

from mcp_workbench.daemon.paths import DaemonPaths, socket_address
from mcp_workbench.timing import deadline, pause

TYPE_CHECKING = False  # see `attach`
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator, Sequence
    from typing import Protocol

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


# Version of the protocol: the first field of a client's first frame, in all versions.
FORMAT = b"1"

# Requests of a client. After COMMAND come the messages of `command_messages`.
JOIN, COMMAND = b"join", b"command"
STATUS, FIGURES, DOWN, RELOAD = b"status", b"figures", b"down", b"reload"
PAGE = b"page"  # for an address that opens the web page
# Later messages of an attached process: its pipes, SIGTERM, SIGINT, heartbeat
PIPES, ASKED, INTERRUPTED, PING = b"pipes", b"asked", b"interrupted", b"ping"
# Responses
WELCOME, REFUSED, REPORT, GOING = b"welcome", b"refused", b"report", b"going"
QUIETLY, LOUDLY = b"quietly", b"loudly"  # whether the client reports a refusal on stderr
# Later messages to an attached process, which stores what it needs to continue on its own
KEEP, OPENED, MODERN, ENDED, PONG = b"keep", b"opened", b"modern", b"ended", b"pong"

MOST = 16 << 20  # bytes of a frame to a client; a report may be long
MOST_REQUEST = 4 << 20  # bytes of a client's request; an environment has at most two MiB
MOST_FIELDS = 20_000  # of a frame: the variables of an environment
MOST_LATER = 1 << 10  # bytes of a client's later frames, each of which is one word
CONNECT = deadline(2.0)  # seconds; a daemon that hangs does not accept once its queue is full
BACKLOG = 128  # connections that wait to be accepted
PAUSE = pause(1.0)  # seconds without accepting, after the process ran out of descriptors
MOST_UNSENT = 8 << 20  # bytes for a client that does not read; then its connection is closed
_HEAD = 4
_CREDENTIALS = 12  # bytes: three numbers
_READ = 1 << 16  # bytes at once
_READ_LATER = 1 << 12  # at once, after the request: each frame may be answered
_FDS = 2  # at most, with one frame


# Frames


class BadFrame(Exception):
    """The peer does not speak this protocol."""


def pack(*fields: bytes) -> bytes:
    """One frame. No field may contain a NUL; paths, variables and JSON do not."""
    body = b"\0".join(fields)
    return len(body).to_bytes(_HEAD, "big") + body


class FrameReader:
    """Bytes in, frames out. `most` is the largest frame, `later` the largest one after the first."""

    def __init__(self, most: int = MOST, later: int = MOST) -> None:
        self._buffer = bytearray()
        self._most = most
        self._later = later

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Return the frames that are complete. Raises BadFrame, before a frame that is too long is read."""
        buffer = self._buffer
        buffer += data
        frames: list[list[bytes]] = []
        start = 0
        while len(buffer) >= start + _HEAD:
            size = int.from_bytes(buffer[start : start + _HEAD], "big")
            if size > self._most:
                raise BadFrame
            end = start + _HEAD + size
            if len(buffer) < end:
                break
            frames.append(_fields(bytes(buffer[start + _HEAD : end])))
            start = end
            self._most = self._later
        del buffer[:start]
        return frames


def _fields(body: bytes) -> list[bytes]:
    if body.count(b"\0") >= MOST_FIELDS:
        raise BadFrame
    return body.split(b"\0")


# The client


class NoAnswer(Exception):
    """The daemon runs but does not answer; the text says what it fails to do."""


def connect(paths: DaemonPaths) -> socket.socket | None:
    """A connection to the daemon; None if it is not running. Raises NoAnswer."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT)
    try:
        address, folder = socket_address(paths.socket)
        try:
            connection.connect(address)
        finally:
            if folder >= 0:
                os.close(folder)
        if peer_credentials(connection)[1] == os.geteuid():
            return connection
    except (TimeoutError, BlockingIOError):  # Linux does not wait where its queue is full
        connection.close()
        raise NoAnswer("it does not accept connections") from None
    except OSError:  # nothing listens there, or a crash has left the socket
        pass
    connection.close()
    return None


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """The pid and the user at the other end; 0 and our own user if the system does not report them."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return 0, os.geteuid()  # the folder is closed to other users
    credentials = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS)
    pid, user = (int.from_bytes(credentials[at : at + 4], "little") for at in (0, 4))
    return pid, user


def request(connection: socket.socket, seconds: float, *fields: bytes) -> list[bytes]:
    """The response; empty if the daemon closes the connection instead. Raises NoAnswer."""
    response, fds = request_with_fds(connection, seconds, *fields)
    for fd in fds:
        os.close(fd)
    return response


def request_with_fds(
    connection: socket.socket, seconds: float, *fields: bytes
) -> tuple[list[bytes], list[int]]:
    """Like `request`, with the descriptors that come with the response."""
    connection.settimeout(seconds)
    reader, fds = FrameReader(), list[int]()
    try:
        connection.sendall(pack(FORMAT, *fields))
        while True:
            data, received, _, _ = socket.recv_fds(connection, _READ, _FDS)
            fds += received
            if not data:
                return [], fds
            if frames := reader.feed(data):
                return frames[0], fds
    except TimeoutError:
        raise NoAnswer(f"it has not answered for {seconds:g} seconds") from None
    except (OSError, BadFrame):
        return [], fds


# The server, in the daemon


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


class ControlServer:
    """Accepts connections of this user, and closes those of others."""

    def __init__(self, listener: socket.socket, handler: RequestHandler) -> None:
        self._listener = listener
        self._handler = handler
        self._connections: set[ControlConnection] = set()
        self._loop = _running_loop()
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


class ControlConnection:
    """One client of the socket. Nothing in it blocks."""

    def __init__(self, connection: socket.socket, handler: RequestHandler, pid: int) -> None:
        connection.settimeout(0)
        self.pid = pid
        self.host: AttachedHost | None = None  # once its pipes are here
        self._socket = connection
        self._handler = handler
        self._reader = FrameReader(MOST_REQUEST, MOST_LATER)
        self._unsent = bytearray()
        self._has_requested = False
        self._loop = _running_loop()
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
            self.detach().close()

    def detach(self) -> socket.socket:
        """The socket, for another protocol; this connection is closed."""
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        return socket.socket(fileno=self._socket.detach())

    def _readable(self) -> None:
        try:
            most = _READ_LATER if self._has_requested else _READ
            data, fds, _, _ = socket.recv_fds(self._socket, most, _FDS)
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
            if frame[0] != FORMAT or len(frame) == 1:
                self.send(REFUSED, LOUDLY, b"it is of another version")
            else:
                self._handler.handle(self, frame[1], frame[2:])
            return
        message = frame[0]
        if message == PING:
            self.send(PONG)
        elif message == RELOAD:
            self._handler.reload()
        elif self.host is not None and message == ASKED:
            self.host.left()
        elif self.host is not None and message == INTERRUPTED:
            self.host.interrupted()


def _running_loop() -> AbstractEventLoop:
    from asyncio import get_running_loop  # not in an attached process

    return get_running_loop()
