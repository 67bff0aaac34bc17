"""Control protocol: the messages on the daemon's local socket.

A frame is a length (four bytes, big-endian) and NUL-separated fields, so an attached process needs no
JSON decoder. A client's first frame starts with the format version.
"""

from __future__ import annotations

FORMAT = (
    b"1"  # version of this protocol: the first field of a client's first frame, in all versions
)

# Requests of a client
JOIN, STATUS, DOWN, RELOAD = b"join", b"status", b"down", b"reload"
# Later messages of an attached process: its pipes, SIGTERM, SIGINT, heartbeat
PIPES, ASKED, INTERRUPTED, PING = b"pipes", b"asked", b"interrupted", b"ping"
# Responses
WELCOME, REFUSED, REPORT, GOING = b"welcome", b"refused", b"report", b"going"
QUIETLY, LOUDLY = b"quietly", b"loudly"  # whether the client reports a refusal on stderr
# Later messages to an attached process, which stores what it needs to continue on its own
KEEP, OPENED, MODERN, ENDED, PONG = b"keep", b"opened", b"modern", b"ended", b"pong"

MOST = 16 << 20  # bytes of a frame; an environment has at most two MiB
_HEAD = 4


class BadFrame(Exception):
    """The peer does not speak this protocol."""


def pack(*fields: bytes) -> bytes:
    """One frame. No field may contain a NUL; paths, variables and JSON do not."""
    body = b"\0".join(fields)
    return len(body).to_bytes(_HEAD, "big") + body


class FrameReader:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[list[bytes]]:
        self._buffer += data
        frames: list[list[bytes]] = []
        while len(self._buffer) >= _HEAD:
            end = _HEAD + int.from_bytes(self._buffer[:_HEAD], "big")
            if end - _HEAD > MOST:
                raise BadFrame
            if len(self._buffer) < end:
                break
            frames.append(self._buffer[_HEAD:end].split(b"\0"))
            self._buffer = self._buffer[end:]
        return frames
