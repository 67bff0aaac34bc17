"""Starts the daemon and waits until it accepts hosts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from select import select
from typing import NamedTuple

from mcp_workbench import __version__
from mcp_workbench.daemon import control
from mcp_workbench.daemon.control import NoAnswer, connect, request
from mcp_workbench.daemon.paths import DaemonPaths

OTHER_HOME = "set MCP_WORKBENCH_HOME to a folder of your own"
LINGER = 600.0  # seconds without a host after which a daemon stops that a host has started
PATIENCE = 20.0  # seconds for its start, which waits for no server
FOUND = "--found"  # option of the process if the user did not name the file
TAKEN = "taken"  # printed by a process if another one holds the lock
FIX = "\nfix: "  # between why it can't start, and what to do
# If we are started by a server of another workbench, this variable would end the daemon with that server
# (`VARIABLE` in `transport/detached.py`, which loads more than a joining host needs).
SERVER_VARIABLE = "MCP_WORKBENCH_SERVER"
_LONGEST = 4000  # characters of stderr that are shown if it can't start


class NotStarted(Exception):
    """Why the daemon could not be started, and what to do."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class Started(NamedTuple):
    """The running daemon."""

    pid: int
    url: str = ""
    is_new: bool = False
    version: str = __version__


def start(
    paths: DaemonPaths,
    *,
    linger: float = 0.0,
    address: tuple[str, int] | None = None,
    log_calls: str = "",
) -> Started:
    """Start a daemon, or return the one that was started meanwhile. Raises NotStarted."""
    _require_sockets()
    try:
        paths.create_folder()
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}" if error.strerror else str(error)
        fix = f"see to its rights (mcp-workbench doctor), or {OTHER_HOME}"
        raise NotStarted(f"the state folder can't be used: {reason}", fix) from None
    port = [] if address is None else [address[0], str(address[1])]
    options = [] if paths.named else [FOUND]
    calls = os.path.abspath(log_calls) if log_calls else ""  # noqa: PTH100 - it changes its folder
    # -P: the current folder may be anybody's, and its files are no modules of ours.
    daemon = [sys.executable, "-P", "-m", "mcp_workbench.daemon"]
    argv = [*daemon, *options, paths.config, str(linger), calls, *port]
    process = subprocess.Popen(  # noqa: S603 - ourselves
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != SERVER_VARIABLE},
        start_new_session=True,  # closing a terminal does not end it
    )
    try:
        return _outcome(process, paths)
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _outcome(process: subprocess.Popen[bytes], paths: DaemonPaths) -> Started:
    """What the new process prints; it has forked, so that it is not our child."""
    process.wait()
    out, err = process.stdout, process.stderr
    if out is None or err is None or not select([out], [], [], PATIENCE)[0]:
        raise NotStarted(f"it is not ready after {PATIENCE:g} seconds")
    word, *fields = out.readline().decode().split() or [""]  # nothing, if the process has ended
    if word == "ready":
        return Started(int(fields[0]), fields[1] if fields[1:] else "", is_new=True)
    if word == TAKEN:
        return _other(paths)
    text = err.read(_LONGEST).decode("utf-8", "replace").strip()
    reason, _, fix = text.partition(FIX)
    raise NotStarted(reason or "it exited without an error message", fix)


def _other(paths: DaemonPaths) -> Started:
    """The process that holds the lock; it is about to accept hosts, or to stop."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if (daemon := running(paths)) is not None:
            return daemon
        time.sleep(0.02)
    raise NotStarted("another one has the lock, and does not answer")


def running(paths: DaemonPaths) -> Started | None:
    """The daemon that runs, if it answers; None if there is none. Raises NotStarted."""
    try:
        connection = connect(paths)
        if connection is None:
            return None
        with connection:
            response = request(connection, PATIENCE, control.STATUS)
    except NoAnswer as error:
        raise NotStarted(f"there is one, and {error}") from None
    if not response or response[0] != control.REPORT:
        return None
    import msgspec  # an attached process mostly does without

    status = msgspec.json.decode(response[1])
    return Started(status["pid"], status["url"], version=status["version"])


def _require_sockets() -> None:
    if os.name != "posix":
        raise NotStarted("this system has no local sockets of the kind that it needs")
