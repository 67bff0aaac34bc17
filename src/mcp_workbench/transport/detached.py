"""Detached processes: what a server has started outside its process group (`setsid`, a double fork).

On Linux every server gets the variable MCP_WORKBENCH_SERVER with a value of its own, and what it starts
inherits it. When the server ends, the processes that have this value are found in /proc and ended. A
process is never signalled by its number, which may become another's, but by a descriptor of the process:
it is opened first, and the environment is read again after that.

A process that may show windows is left alone: it may be the browser of a person.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from mcp_workbench.transport.tasks import comes_within

VARIABLE = "MCP_WORKBENCH_SERVER"
WINDOWS = b"DISPLAY="  # of DISPLAY and WAYLAND_DISPLAY
SUPPORTED = sys.platform == "linux" and hasattr(os, "pidfd_open")
ENVIRONMENT_BYTES = 1 << 20  # read of an environment; Linux allows more, programs use less
# Seconds for one search, which takes milliseconds. It has a thread and a limit of its own: reading /proc
# hangs if a process has its memory locked and waits for a dead network disk.
SEARCH = 1.0
ROUNDS = 8  # searches: what is being ended may start something else


class DetachedProcess:
    """One process that was found, whatever becomes of its number."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.fd = fd  # readable once it has exited

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self.fd, number)

    def close(self) -> None:
        os.close(self.fd)


class DetachedProcesses:
    """The detached processes of one server. Without a value for the variable there are none."""

    def __init__(self, value: str, group: int) -> None:
        self._mark = f"\0{VARIABLE}={value}\0".encode() if value else b""
        self._group = group
        self._ended = not value

    async def terminate(self, grace: float) -> None:
        """Send them SIGTERM, and wait until they have exited, at most for `grace` seconds."""
        found = [] if self._ended else await self._found()
        try:
            _signal(found, signal.SIGTERM)
            await _gone_within(found, grace)
        finally:
            _close(found)

    async def end(self, grace: float) -> None:
        """Kill them all; before that, let them react to SIGTERM for `grace` seconds."""
        for _ in range(ROUNDS):
            if self._ended:
                return
            found = await self._found()
            try:
                if found and grace:
                    _signal(found, signal.SIGTERM)
                    await _gone_within(found, grace)
                    grace = 0.0  # once
                _signal(found, signal.SIGKILL)
                # What the kernel can't end would be found again and again.
                self._ended = not found or not await _gone_within(found, SEARCH)
            finally:
                _close(found)

    def end_now(self) -> None:
        """Kill them all, without the loop."""
        for _ in range(ROUNDS):
            if self._ended:
                return
            search = ProcessSearch(self._mark, self._group, _nothing)
            search.wait(SEARCH)
            found = search.take()
            _signal(found, signal.SIGKILL)
            self._ended = not found or not _gone_now(found, SEARCH)
            _close(found)

    async def _found(self) -> list[DetachedProcess]:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def finished() -> None:
            with suppress(RuntimeError):  # the loop is closed by now
                loop.call_soon_threadsafe(done.set)

        search = ProcessSearch(self._mark, self._group, finished)
        try:
            await comes_within(done, SEARCH)
            return search.take()
        finally:
            _close(search.take())  # nothing, unless we were interrupted


# Searching


class ProcessSearch(threading.Thread):
    """One look at all processes, in a thread of its own."""

    def __init__(self, mark: bytes, group: int, done: Callable[[], None]) -> None:
        super().__init__(name="search for detached processes", daemon=True)
        self._mark = mark
        self._group = group
        self._done = done
        self._lock = threading.Lock()
        self._found: list[DetachedProcess] = []
        self._taken = False
        try:
            self.start()
        except RuntimeError:  # no more threads are allowed: nothing is found
            done()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the search, if there is one."""
        if self.ident is not None:
            self.join(seconds)

    def run(self) -> None:
        found = find(self._mark, self._group)
        with self._lock:
            if self._taken:
                _close(found)  # nobody waits any more
            else:
                self._found = found
        self._done()

    def take(self) -> list[DetachedProcess]:
        """What was found, to be closed by the caller; nothing if the search still goes on."""
        with self._lock:
            found, self._found = self._found, []
            self._taken = True
        return found


def find(mark: bytes, group: int) -> list[DetachedProcess]:
    """All processes with this mark that are not in this group."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - thousands
    except OSError:
        return []  # not mounted
    opened = (_opened(pid, mark, group) for pid in pids)
    return [process for process in opened if process is not None]


def _opened(pid: int, mark: bytes, group: int) -> DetachedProcess | None:
    if pid == os.getpid() or not _has_mark(pid, mark):
        return None
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # it has exited, or there are no descriptors left
        return None
    # The number may have become another's before the descriptor was opened: look again.
    if _has_mark(pid, mark) and _group_of(pid) != group:
        return DetachedProcess(pid, fd)
    os.close(fd)
    return None


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def _has_mark(pid: int, mark: bytes) -> bool:
    environment = b"\0" + _environment(pid) + b"\0"
    return mark in environment and WINDOWS not in environment


def _environment(pid: int) -> bytes:
    """The environment with which a process was started; empty if it is another user's, or has exited."""
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:
        return b""
    parts: list[bytes] = []
    try:
        size = 0
        while size < ENVIRONMENT_BYTES and (part := os.read(fd, 1 << 16)):
            parts.append(part)
            size += len(part)
    except OSError:  # it has just exited
        return b""
    finally:
        os.close(fd)
    return b"".join(parts)


# Ending


def _signal(found: Iterable[DetachedProcess], number: signal.Signals) -> None:
    for process in found:
        process.send(number)


def _close(found: Iterable[DetachedProcess]) -> None:
    for process in found:
        process.close()


async def _gone_within(found: Iterable[DetachedProcess], seconds: float) -> bool:
    loop, all_gone = asyncio.get_running_loop(), asyncio.Event()
    left = {process.fd for process in found}
    if not left:
        return True

    def gone(fd: int) -> None:
        loop.remove_reader(fd)
        left.discard(fd)
        if not left:
            all_gone.set()

    for process in found:
        loop.add_reader(process.fd, gone, process.fd)
    try:
        return await comes_within(all_gone, seconds)
    finally:
        for fd in left:
            loop.remove_reader(fd)


def _gone_now(found: Iterable[DetachedProcess], seconds: float) -> bool:
    left = {process.fd for process in found}
    exits = select.poll()
    for fd in left:
        exits.register(fd, select.POLLIN)
    until = time.monotonic() + seconds
    while left and (remaining := until - time.monotonic()) > 0:
        for fd, _ in exits.poll(remaining * 1000):
            exits.unregister(fd)
            left.discard(fd)
    return not left


def _nothing() -> None:
    pass
