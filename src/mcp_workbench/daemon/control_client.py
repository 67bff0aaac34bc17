"""Control client: connects to a daemon's socket, checks its user, sends a request."""

from __future__ import annotations

import os
import socket

from mcp_workbench.daemon.control_protocol import FORMAT, BadFrame, FrameReader, pack
from mcp_workbench.daemon.paths import DaemonPaths, socket_address
from mcp_workbench.timing import deadline

CONNECT = deadline(2.0)  # seconds; a daemon that hangs does not accept once its queue is full
_CREDENTIALS = 12  # bytes: three numbers
_MOST = 1 << 16
_FDS = 2  # at most, with one response


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
            data, received, _, _ = socket.recv_fds(connection, _MOST, _FDS)
            fds += received
            if not data:
                return [], fds
            if frames := reader.feed(data):
                return frames[0], fds
    except TimeoutError:
        raise NoAnswer(f"it has not answered for {seconds:g} seconds") from None
    except (OSError, BadFrame):
        return [], fds
