"""What is said on the local socket: frames of fields, for which a joiner needs no JSON."""

from __future__ import annotations

FORMAT = b"1"  # of this file; the first field of whoever comes, and never another

# What is wished for
JOIN, STATUS, DOWN, RELOAD = b"join", b"status", b"down", b"reload"
# What a joiner says later
PIPES, ASKED, INTERRUPTED, PING = b"pipes", b"asked", b"interrupted", b"ping"
# What is answered
WELCOME, REFUSED, REPORT, GOING = b"welcome", b"refused", b"report", b"going"
QUIETLY, LOUDLY = b"quietly", b"loudly"  # whether a refusal is told to people
# What a joiner is told later: it keeps what it would need to go on by itself
KEEP, OPENED, MODERN, ENDED, PONG = b"keep", b"opened", b"modern", b"ended", b"pong"

MOST = 16 << 20  # bytes of a frame; an environment has two at most
_HEAD = 4


class BadFrame(Exception):
    """Whoever speaks here does not know these words."""


def packed(*fields: bytes) -> bytes:
    """One frame. No field may hold a NUL: paths, variables and JSON do not."""
    body = b"\0".join(fields)
    return len(body).to_bytes(_HEAD, "big") + body


class Frames:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[list[bytes]]:
        self._held += data
        found: list[list[bytes]] = []
        while len(self._held) >= _HEAD:
            end = _HEAD + int.from_bytes(self._held[:_HEAD], "big")
            if end - _HEAD > MOST:
                raise BadFrame
            if len(self._held) < end:
                break
            found.append(self._held[_HEAD:end].split(b"\0"))
            self._held = self._held[end:]
        return found
