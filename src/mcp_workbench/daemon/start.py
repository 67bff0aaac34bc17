"""A workbench is started in the background, and waited for until it lets hosts in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from select import select
from typing import NamedTuple

from mcp_workbench import __version__
from mcp_workbench.daemon import words
from mcp_workbench.daemon.door import NoAnswer, ask, knock
from mcp_workbench.daemon.folder import Place

OTHER_HOME = "set MCP_WORKBENCH_HOME to a folder of your own"
LINGER = 600.0  # seconds without a host after which one ends that was started by a host
PATIENCE = 20.0  # seconds for its start; nothing of it waits for a server
FOUND = "--found"  # given to it where the user did not name the file
TAKEN = "taken"  # said by a process that found another one with the lock
FIX = "\nfix: "  # between what it says when it can't start, and what to do then
_LONGEST = 4000  # characters of what it says when it can't start


class NotStarted(Exception):
    """Why there is none, and what to do."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


class Started(NamedTuple):
    """What runs now."""

    pid: int
    url: str = ""
    is_new: bool = False
    version: str = __version__


def start(
    place: Place,
    *,
    linger: float = 0.0,
    address: tuple[str, int] | None = None,
    log_calls: str = "",
) -> Started:
    """Start one, or find the one that was started meanwhile. Raises NotStarted."""
    _require_sockets()
    try:
        place.make()
    except OSError as error:
        why = f"{error.strerror}: {error.filename}" if error.strerror else str(error)
        fix = f"see to its rights (mcp-workbench doctor), or {OTHER_HOME}"
        raise NotStarted(f"the state folder can't be used: {why}", fix) from None
    where = [] if address is None else [address[0], str(address[1])]
    found = [] if place.named else [FOUND]
    calls = os.path.abspath(log_calls) if log_calls else ""  # noqa: PTH100 - it starts elsewhere
    daemon = [sys.executable, "-m", "mcp_workbench.daemon"]
    argv = [*daemon, *found, place.config, str(linger), calls, *where]
    process = subprocess.Popen(  # noqa: S603 - ourselves
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # no window's end is its end
    )
    try:
        return _outcome(process, place)
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _outcome(process: subprocess.Popen[bytes], place: Place) -> Started:
    """What the new process says; it has left its first self behind, so that it is nobody's child."""
    process.wait()
    out, err = process.stdout, process.stderr
    if out is None or err is None or not select([out], [], [], PATIENCE)[0]:
        raise NotStarted(f"it is not ready after {PATIENCE:g} seconds")
    word, *fields = out.readline().decode().split() or [""]  # nothing, if the process has ended
    if word == "ready":
        return Started(int(fields[0]), fields[1] if fields[1:] else "", is_new=True)
    if word == TAKEN:
        return _other(place)
    said = err.read(_LONGEST).decode("utf-8", "replace").strip()
    why, _, fix = said.partition(FIX)
    raise NotStarted(why or "it ended without a word", fix)


def _other(place: Place) -> Started:
    """Another process has the lock; it is about to let hosts in, or to end."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if (found := running(place)) is not None:
            return found
        time.sleep(0.02)
    raise NotStarted("another one has the lock, and does not answer")


def running(place: Place) -> Started | None:
    """The one that runs, if it answers."""
    try:
        door = knock(place)
        if door is None:
            return None
        with door:
            answer = ask(door, PATIENCE, words.STATUS)
    except NoAnswer as error:
        raise NotStarted(f"there is one, and {error}") from None
    if not answer or answer[0] != words.REPORT:
        return None
    import msgspec  # a joiner does without, mostly

    told = msgspec.json.decode(answer[1])
    return Started(told["pid"], told["url"], version=told["version"])


def _require_sockets() -> None:
    if os.name != "posix":
        raise NotStarted("this system has no local sockets of the kind that it needs")
