"""Lines of the audit: read from the current file and its predecessors, and followed as they come."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from mcp_workbench.timing import pause

POLL = pause(0.2)  # seconds between two reads of a file that is followed
READ_BYTES = 1 << 20
LONGEST = 1 << 20  # bytes of a line; ours are far shorter
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Milliseconds(msgspec.Struct, frozen=True):
    """How long a call took, and its parts."""

    total: float = 0.0
    queue: float = 0.0
    connect: float = 0.0
    server: float = 0.0


class CallLine(msgspec.Struct):
    """One line; members that are not needed here are skipped."""

    ts: str
    outcome: str
    pid: int = 0
    host: str = ""
    host_version: str = ""
    door: str = ""
    toolbox: str = ""
    server: str = ""
    tool: str = ""
    method: str = ""
    is_error: bool = False
    ms: Milliseconds = Milliseconds()
    result_bytes: int = 0
    arguments: str = ""
    lost: int = 0
    raw: bytes = b""  # as it is in the file

    @property
    def name(self) -> str:
        return self.tool or self.method

    @property
    def target(self) -> str:
        return "/".join(filter(None, (self.toolbox, self.server, self.name))) or "(unknown)"

    @property
    def seconds(self) -> float:
        """Seconds since the epoch."""
        return datetime.fromisoformat(self.ts).timestamp()


_decode = msgspec.json.Decoder(CallLine).decode


def read_since(text: str, now: float) -> float:
    """Returns a moment in seconds since the epoch: `2h` ago, or a date, in UTC. Raises ValueError."""
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class AuditReader:
    """Reads all files of an audit once, oldest first, and then what is appended to them."""

    def __init__(self, path: str, files: int) -> None:
        self._path = path
        self._files = files
        self._current: AuditTail | None = None
        self._previous: AuditTail | None = None  # a process may not know yet that it was rotated
        self.unreadable = 0  # lines

    def lines(self) -> Iterator[CallLine]:
        """Yields the lines that there are now."""
        tails: dict[tuple[int, int], AuditTail] = {}
        # The newest first, so that a rotation meanwhile shows a file twice, and hides none.
        for number in range(self._files):
            tail = AuditTail.opened(f"{self._path}.{number}" if number else self._path)
            if tail is not None and tails.setdefault(tail.identity, tail) is not tail:
                tail.close()
            if not number:
                self._current = tail
        for tail in reversed(tails.values()):
            yield from self._read(tail)
            if tail is not self._current:
                tail.close()

    def followed(self) -> Iterator[CallLine]:
        """Yields lines as they are written, for ever."""
        while True:
            time.sleep(POLL)
            for tail in (self._previous, self._current):
                if tail is not None:
                    yield from self._read(tail)
            yield from self._read_successor()

    def _read_successor(self) -> Iterator[CallLine]:
        """Yields the lines of a new file, where one has the name of the current one."""
        new = AuditTail.opened(self._path)
        if new is None:
            return
        if self._current is not None and new.identity == self._current.identity:
            new.close()
            return
        if self._previous is not None:
            self._previous.close()
        self._previous, self._current = self._current, new
        yield from self._read(new)

    def _read(self, tail: AuditTail) -> Iterator[CallLine]:
        for raw in tail.lines():
            if not raw.strip():
                continue  # a full disk had no room for the whole of a line
            try:
                line = _decode(raw)
            except (msgspec.DecodeError, RecursionError):
                self.unreadable += 1
                continue
            line.raw = raw
            yield line


class AuditTail:
    """An open file, read up to its last whole line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        status = os.fstat(fd)
        self.identity = (status.st_dev, status.st_ino)

    @classmethod
    def opened(cls, path: str) -> AuditTail | None:
        """Open the file; None if there is none. Raises OSError, and never waits for a pipe."""
        try:
            fd = os.open(path, _FLAGS)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "it is no plain file", path)
        return cls(fd)

    def close(self) -> None:
        os.close(self._fd)

    def lines(self) -> Iterator[bytes]:
        while data := os.read(self._fd, READ_BYTES):
            *whole, rest = (self._rest + data).split(b"\n")
            self._rest = rest[:LONGEST]  # what is longer is no line of ours
            yield from whole
