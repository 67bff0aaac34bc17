"""The way to a background workbench: connecting to its socket, and seeing whose it is."""

from __future__ import annotations

import os
import socket

from mcp_workbench.daemon.folder import Place, socket_address
from mcp_workbench.daemon.words import FORMAT, BadFrame, Frames, packed
from mcp_workbench.timing import deadline

CONNECT = deadline(2.0)  # seconds; the queue of a workbench that hangs is full at some time
_CREDENTIALS = 12  # bytes: three numbers
_MOST = 1 << 16
_FDS = 2  # at most, with one answer


class NoAnswer(Exception):
    """There is a workbench, and it does not answer; the text says how."""


def knock(place: Place) -> socket.socket | None:
    """A connection to the workbench of this place; None where there is none."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.settimeout(CONNECT)
    try:
        address, folder = socket_address(place.socket)
        try:
            door.connect(address)
        finally:
            if folder >= 0:
                os.close(folder)
        if peer_of(door)[1] == os.geteuid():
            return door
    except TimeoutError:
        door.close()
        raise NoAnswer("it does not let anybody in") from None
    except OSError:  # nobody is there, or what a crash has left
        pass
    door.close()
    return None


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end; where the system can't tell, 0 and we ourselves."""
    asked = getattr(socket, "SO_PEERCRED", None)
    if asked is None:
        return 0, os.geteuid()  # the folder lets nobody else in
    told = connection.getsockopt(socket.SOL_SOCKET, asked, _CREDENTIALS)
    pid, user = (int.from_bytes(told[at : at + 4], "little") for at in (0, 4))
    return pid, user


def ask(door: socket.socket, seconds: float, *wish: bytes) -> list[bytes]:
    """The answer to a wish; empty where the other side leaves instead."""
    answer, fds = ask_with_fds(door, seconds, *wish)
    for fd in fds:
        os.close(fd)
    return answer


def ask_with_fds(
    door: socket.socket, seconds: float, *wish: bytes
) -> tuple[list[bytes], list[int]]:
    """The same with the descriptors that may come with the answer."""
    door.settimeout(seconds)
    frames, fds = Frames(), list[int]()
    try:
        door.sendall(packed(FORMAT, *wish))
        while True:
            data, came, _, _ = socket.recv_fds(door, _MOST, _FDS)
            fds += came
            if not data:
                return [], fds
            if found := frames.feed(data):
                return found[0], fds
    except TimeoutError:
        raise NoAnswer(f"it has not answered for {seconds:g} seconds") from None
    except (OSError, BadFrame):
        return [], fds
