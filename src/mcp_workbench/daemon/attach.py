"""Attach: decides whether `serve` hands its host to a running daemon, and waits for its end.

Every `serve` over stdio loads this first, and most find no daemon: then looking for its socket is all that
happens. A process that attaches hands its host's pipes to the daemon, waits, and forwards signals; it
loads neither asyncio nor msgspec. If the daemon ends, the process continues with the host itself, from a
`Takeover` (see `crash_journal`).
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import time
from contextlib import suppress

from mcp_workbench import __version__
from mcp_workbench.daemon.paths import DaemonPaths, daemon_paths, lock_holder
from mcp_workbench.timing import deadline, pause

TYPE_CHECKING = False  # `typing` takes four milliseconds, which an attached process does not need
if TYPE_CHECKING:
    from types import FrameType

VARIABLE = "MCP_WORKBENCH_SERVE_ATTACH"
AUTO, ALWAYS, NEVER = CHOICES = ("auto", "always", "never")
FAILED = 1  # exit status
INTERRUPTED = 130  # exit status after SIGINT
ANSWER = deadline(3.0)  # seconds for the daemon to respond; one that hangs must not block its hosts
BEAT = pause(10.0)  # seconds without a message, after which the daemon is sent a ping
SILENCE = 3 * BEAT  # seconds without a response, after which the daemon is killed
KEPT = 1000  # requests of a host that subscribes again and again


class AttachFailed(Exception):
    """Why this host can't be served by the daemon."""


def attach_host(
    config: str | None, toolboxes: tuple[str, ...], attach: str
) -> int | Takeover | None:
    """The exit status of a host that the daemon has served; None: serve it in this process.

    A `Takeover` is served in this process as well, from where the daemon has left it.
    """
    mode = attach or os.environ.get(VARIABLE) or AUTO
    if mode == NEVER:
        return None
    try:
        if mode not in CHOICES:
            raise AttachFailed(f"{VARIABLE} is '{mode}', not {', '.join(CHOICES)}")  # noqa: TRY301
        paths = daemon_paths(config)
        if mode == ALWAYS:
            return _attach_or_start(paths, toolboxes)
        if paths is None or not paths.home or not os.path.exists(paths.socket) or not _on_pipes():  # noqa: PTH110
            return None
        return serve_attached(paths, toolboxes)
    except AttachFailed as error:
        return _report(error, mode)


def _attach_or_start(paths: DaemonPaths | None, toolboxes: tuple[str, ...]) -> int | Takeover:
    if paths is None:
        raise AttachFailed("there is no configuration file that could be shared")
    if not _on_pipes():
        raise AttachFailed("stdin and stdout must be pipes")
    outcome = serve_attached(paths, toolboxes)
    if outcome is None:
        from mcp_workbench.daemon.start import LINGER, NotStarted, start  # loads `subprocess`

        try:
            start(paths, linger=LINGER)
        except NotStarted as error:
            raise AttachFailed(f"none could be started: {error}") from None
        _warn_of_owner(paths)
        outcome = serve_attached(paths, toolboxes)
    if outcome is None:
        raise AttachFailed("it ended at once; see mcp-workbench logs")
    return outcome


def _warn_of_owner(paths: DaemonPaths) -> None:
    """Warn the user who has named a file that another user could have written."""
    from mcp_workbench.config.file_access import check_ownership, ownership_notice

    if line := ownership_notice(paths.config, check_ownership(paths.config, os.stat(paths.config))):  # noqa: PTH116
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _on_pipes() -> bool:
    """Only pipes and sockets are handed over; others may use the same terminal or file."""
    modes = [os.fstat(fd).st_mode for fd in (0, 1)]
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


def _report(error: AttachFailed, mode: str) -> int | None:
    """Report in one line, because hosts show stderr. With `always` the host is not served otherwise."""
    alone = "" if mode == ALWAYS else "; this host is served by itself"
    sys.stderr.write(f"mcp-workbench: the shared workbench was not joined: {error}{alone}\n")
    sys.stderr.flush()
    return FAILED if mode == ALWAYS else None


# While the daemon serves the host


def serve_attached(paths: DaemonPaths, toolboxes: tuple[str, ...]) -> int | Takeover | None:
    """Attach to the daemon and wait; None if it is not running. Raises AttachFailed."""
    from mcp_workbench.daemon import control  # only if there may be a daemon

    try:
        connection = control.connect(paths)
        if connection is None:
            return None
        fields = [__version__.encode(), os.fsencode(paths.config), ",".join(toolboxes).encode()]
        fields.append(_folder())
        fields += [b"%b=%b" % pair for pair in os.environb.items()]
        response, fds = control.request_with_fds(connection, ANSWER, control.JOIN, *fields)
    except control.NoAnswer as error:
        raise AttachFailed(str(error)) from None
    if not response:
        return None  # it has just ended
    if response[:2] == [control.REFUSED, control.QUIETLY]:
        return None  # serving the host in this process reports the same problem
    if response[0] != control.WELCOME or not fds:
        raise AttachFailed(response[-1].decode("utf-8", "replace"))
    pid = control.peer_credentials(connection)[0] or lock_holder(paths)
    return _AttachedProcess(connection, Takeover(*fds), pid).wait()


def _folder() -> bytes:
    """The folder in which the host has started us; empty if it is gone."""
    try:
        return os.getcwdb()  # noqa: PTH109 - `pathlib` takes four milliseconds
    except OSError:
        return b""


class Takeover:
    """A host whose daemon has ended, with what is needed to continue its session."""

    def __init__(self, journal: int, outlet: int = -1) -> None:
        self.journal = journal  # descriptor of the crash journal
        self.outlet = outlet  # descriptor of the outbox, or -1 if the system has none
        self.kept: list[bytes] = []  # requests that set up the session
        self.opened: list[str] = []  # toolboxes
        self.is_modern = False


class _AttachedProcess:
    """This process while the daemon serves its host: it only forwards signals."""

    def __init__(self, connection: socket.socket, takeover: Takeover, pid: int) -> None:
        from mcp_workbench.daemon import control  # as in `serve_attached`

        self._control = control
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
        reader = self._control.FrameReader()
        self._connection.settimeout(BEAT)
        try:
            socket.send_fds(self._connection, [self._control.pack(self._control.PIPES)], [0, 1])
            while data := self._receive():
                for frame in reader.feed(data):
                    if frame[0] == self._control.ENDED:
                        return int(frame[1])
                    self._record(frame)
        except OSError:  # it was killed
            pass
        return None

    def _record(self, frame: list[bytes]) -> None:
        """Store what is needed to continue without the daemon."""
        control, takeover = self._control, self._takeover
        kind, *fields = frame
        if kind == control.KEEP:
            takeover.kept.append(fields[0])
            del takeover.kept[1:-KEPT]  # the first is `initialize`
        elif kind == control.OPENED:
            takeover.opened.append(fields[0].decode())
        elif kind == control.MODERN:
            takeover.is_modern = True

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
                self._send(self._control.PING)
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
        self._send(self._control.INTERRUPTED if number == signal.SIGINT else self._control.ASKED)

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        if self._has_terminal and not os.isatty(2):  # the window was closed
            self._stop(number, frame)
        else:
            self._send(self._control.RELOAD)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # the daemon is gone, which `_receive` notices
            self._connection.sendall(self._control.pack(message))


class _StoppedTwice(Exception):
    """A second signal asked this process to stop."""
