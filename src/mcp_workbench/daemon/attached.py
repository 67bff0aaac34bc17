"""The attached process: hands its host's pipes to the daemon, waits, and forwards signals.

It loads neither asyncio nor msgspec. If the daemon ends, the process continues with the host itself, from
a `Takeover` (see `resume`).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress

from mcp_workbench import __version__
from mcp_workbench.daemon import control_protocol as protocol
from mcp_workbench.daemon.attach import AttachFailed
from mcp_workbench.daemon.control_client import (
    NoAnswer,
    connect,
    peer_credentials,
    request_with_fds,
)
from mcp_workbench.daemon.paths import DaemonPaths, lock_holder
from mcp_workbench.timing import deadline, pause

TYPE_CHECKING = False  # see `attach`
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130  # exit status after SIGINT
ANSWER = deadline(3.0)  # seconds for the daemon to respond; one that hangs must not block its hosts
BEAT = pause(10.0)  # seconds without a message, after which the daemon is sent a ping
SILENCE = 3 * BEAT  # seconds without a response, after which the daemon is killed
KEPT = 1000  # requests of a host that subscribes again and again


class Takeover:
    """A host whose daemon has ended, with what is needed to continue its session."""

    def __init__(self, journal: int, outlet: int = -1) -> None:
        self.journal = journal  # descriptor of the crash journal
        self.outlet = outlet  # descriptor of the outbox, or -1 if the system has none
        self.kept: list[bytes] = []  # requests that set up the session
        self.opened: list[str] = []  # toolboxes
        self.is_modern = False

    def record(self, frame: list[bytes]) -> None:
        kind, *fields = frame
        if kind == protocol.KEEP:
            self.kept.append(fields[0])
            del self.kept[1:-KEPT]  # the first is `initialize`
        elif kind == protocol.OPENED:
            self.opened.append(fields[0].decode())
        elif kind == protocol.MODERN:
            self.is_modern = True


def serve_attached(paths: DaemonPaths, toolboxes: tuple[str, ...]) -> int | Takeover | None:
    """Attach to the daemon and wait; None if it is not running. Raises AttachFailed."""
    try:
        connection = connect(paths)
        if connection is None:
            return None
        fields = [__version__.encode(), os.fsencode(paths.config), ",".join(toolboxes).encode()]
        fields += [b"%b=%b" % pair for pair in os.environb.items()]
        response, fds = request_with_fds(connection, ANSWER, protocol.JOIN, *fields)
    except NoAnswer as error:
        raise AttachFailed(str(error)) from None
    if not response:
        return None  # it has just ended
    if response[:2] == [protocol.REFUSED, protocol.QUIETLY]:
        return None  # serving the host in this process reports the same problem
    if response[0] != protocol.WELCOME or not fds:
        raise AttachFailed(response[-1].decode("utf-8", "replace"))
    pid = peer_credentials(connection)[0] or lock_holder(paths)
    return _AttachedProcess(connection, Takeover(*fds), pid).wait()


class _AttachedProcess:
    """This process while the daemon serves its host: it only forwards signals."""

    def __init__(self, connection: socket.socket, takeover: Takeover, pid: int) -> None:
        self._connection = connection
        self._takeover = takeover
        self._pid = pid  # of the daemon
        self._how = "has ended"
        self._stop_signals = 0  # received
        self._status = 0
        self._has_terminal = os.isatty(2)

    def wait(self) -> int | Takeover:
        handlers = {"SIGTERM": self._stop, "SIGINT": self._stop, "SIGHUP": self._hang_up}
        before = {
            number: signal.signal(number, act)
            for number, act in ((getattr(signal, name), act) for name, act in handlers.items())
        }
        try:
            status = self._served()
        except _StoppedTwice:
            status = self._status
        for number, act in before.items():
            signal.signal(number, act)
        self._connection.close()
        if status is not None or self._stop_signals:
            return self._status if status is None else status
        sys.stderr.write(
            f"mcp-workbench: the shared workbench (pid {self._pid}) {self._how}; "
            "this host goes on by itself\n"
        )
        sys.stderr.flush()
        return self._takeover

    def _served(self) -> int | None:
        """The exit status; None if the daemon closes the connection without sending one."""
        reader = protocol.FrameReader()
        self._connection.settimeout(BEAT)
        try:
            socket.send_fds(self._connection, [protocol.pack(protocol.PIPES)], [0, 1])
            while data := self._receive():
                for frame in reader.feed(data):
                    if frame[0] == protocol.ENDED:
                        return int(frame[1])
                    self._takeover.record(frame)
        except OSError:  # it was killed
            pass
        return None

    def _receive(self) -> bytes:
        """The next bytes from the daemon; empty once it is gone.

        A daemon that does not respond, because it was stopped or hangs, is killed: it holds the
        host's pipes, and if it woke up later, two processes would read them.
        """
        since = time.monotonic()
        while True:
            try:
                return self._connection.recv(1 << 16)
            except TimeoutError:
                self._send(protocol.PING)
            if time.monotonic() - since > SILENCE and self._pid > 0:
                self._how = f"gave no sign of life for {SILENCE:g} seconds and was ended"
                os.kill(self._pid, signal.SIGKILL)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """The first signal lets calls in flight finish; the second ends this process at once."""
        self._stop_signals += 1
        if number == signal.SIGINT:
            self._status = INTERRUPTED
        if self._stop_signals > 1:
            raise _StoppedTwice
        self._send(protocol.INTERRUPTED if number == signal.SIGINT else protocol.ASKED)

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        if self._has_terminal and not os.isatty(2):  # the window was closed
            self._stop(number, frame)
        else:
            self._send(protocol.RELOAD)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # the daemon is gone, which `_receive` notices
            self._connection.sendall(protocol.pack(message))


class _StoppedTwice(Exception):
    """A second signal asked this process to stop."""
