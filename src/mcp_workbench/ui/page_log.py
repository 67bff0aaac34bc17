"""What happened to servers lately: their stderr, and the changes of their states. Bounded, in memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from mcp_workbench.core.spec import ServerAddress

LINES = 400  # of stderr that are kept for a server
CHANGES = 100  # of states that are kept for a server
MOST_SERVERS = 2000  # a configuration that is reloaded again and again has ever new names
SOURCE = "mcp_workbench.upstream"


class LogLine(msgspec.Struct, frozen=True):
    """One line of a server, or about its process."""

    number: int  # over all servers, ascending
    time: float
    text: str
    ours: bool = False  # written by us, about the server


class StateChange(msgspec.Struct, frozen=True):
    """A state that a server has reached."""

    time: float
    state: str
    reason: str = ""


class ServerLog(logging.Handler):
    """Keeps what servers write to stderr, as our log has it: secrets are masked there."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.number = 0
        self.on_line: Callable[[], None] = lambda: None  # in whatever thread
        self._lines: dict[str, deque[LogLine]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        server = getattr(record, "server", "")
        address = str(server) if server else _about(record)
        if not address:
            return
        text = record.getMessage().removeprefix(f"{address}: ")
        lines = self._lines.get(address)
        if lines is None:
            if len(self._lines) >= MOST_SERVERS:
                return
            lines = self._lines[address] = deque(maxlen=LINES)
        self.number += 1
        lines.append(LogLine(self.number, record.created, text, ours=not server))
        self.on_line()

    def lines(self, address: ServerAddress, after: int = 0) -> list[LogLine]:
        """The lines of a server that are newer than this number."""
        return [line for line in self._lines.get(str(address), ()) if line.number > after]


def _about(record: logging.LogRecord) -> str:
    """The server that a line of ours is about; empty if it is about none."""
    first = record.args[0] if isinstance(record.args, tuple) and record.args else None
    return str(first) if isinstance(first, ServerAddress) else ""


@contextmanager
def server_log() -> Generator[ServerLog]:
    """Keep the lines of servers for the length of the block; other logs get what they got before."""
    root, source = logging.getLogger(), logging.getLogger(SOURCE)
    handler, level = ServerLog(), source.level
    for other in root.handlers:
        if other.level == logging.NOTSET:
            other.setLevel(root.getEffectiveLevel())
    source.addHandler(handler)
    source.setLevel(min(logging.INFO, source.getEffectiveLevel()))
    try:
        yield handler
    finally:
        source.removeHandler(handler)
        source.setLevel(level)


class Timeline:
    """The states that servers went through, as they were noticed."""

    def __init__(self) -> None:
        self._changes: dict[ServerAddress, deque[StateChange]] = {}

    def note(self, address: ServerAddress, state: str, reason: str, now: float) -> bool:
        """Note the state of a server. Whether it is another one."""
        changes = self._changes.get(address)
        if changes is None:
            if len(self._changes) >= MOST_SERVERS:
                return False
            changes = self._changes[address] = deque(maxlen=CHANGES)
        last = changes[-1] if changes else None
        reason = "" if state == "starting" else reason  # it counts the seconds
        if last is not None and (last.state, last.reason) == (state, reason):
            return False
        changes.append(StateChange(now, state, reason))
        return True

    def of(self, address: ServerAddress) -> list[StateChange]:
        return list(self._changes.get(address, ()))
