"""Composition: what is built from what, and how long each part lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from mcp_workbench.core.spec import Snapshot
from mcp_workbench.follow import following
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.session import HostSession
from mcp_workbench.surface.stdio_front import StdioFront
from mcp_workbench.wire import own_streams
from mcp_workbench.wire.stdio import PipeReader
from mcp_workbench.wire.tasks import task_scope
from mcp_workbench.workbench import Workbench

T = TypeVar("T")

DRAIN = 3.0  # seconds for requests under way after our input has ended; SIGTERM cuts it short
FLUSH = 1.0  # seconds for the last answers to leave
INTERRUPTED = 130  # exit status after SIGINT


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on the fastest loop there is. Ctrl-C cancels, then raises KeyboardInterrupt."""
    try:
        from uvloop import new_event_loop  # not on every system
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def serve(snapshot: Snapshot, *, opened: tuple[str, ...] = (), verbose: bool = False) -> int:
    """Serve one host on stdin and stdout until it leaves; the exit status.

    In dynamic mode the toolboxes in `opened` show their tools from the start.
    """
    level = logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="mcp-workbench: %(message)s")
    return run(_serve(snapshot, opened))


async def _serve(snapshot: Snapshot, opened: tuple[str, ...]) -> int:
    own_in, own_out = own_streams.claim_standard_streams()
    end = Ending()
    end.on_signals()
    async with Workbench(snapshot) as workbench, task_scope() as requests:
        unread = end.host_left.set if own_streams.is_pipe(own_out) else partial(end.now, 1)
        channel = own_streams.open_writer(own_out, unread)
        channel.on_pressure(workbench.hold)
        menu = Menu(workbench, opened)
        session = HostSession(workbench, channel, requests, menu, asked="by all servers")
        front = StdioFront(session, channel, snapshot.limits.message_bytes)
        _listen(own_in, front, end)
        with following(workbench, opened) as look:
            end.on_hang_up(look, own_in, own_out)
            await end.host_left.wait()
            await _drain(session, end)
    await channel.flushed(FLUSH)
    return end.status


class Ending:
    """Why and how urgently we end: the host left, or somebody asked us to."""

    def __init__(self) -> None:
        self.host_left = asyncio.Event()
        self.at_once = asyncio.Event()
        self.status = 0

    def on_signals(self) -> None:
        """Without handlers a signal would leave our servers behind. The servers end all the same."""
        loop = asyncio.get_running_loop()
        for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, INTERRUPTED)):
            with contextlib.suppress(NotImplementedError):  # Windows has none on its loop
                loop.add_signal_handler(number, self.now, status)
        self.on_hang_up(partial(self.now, 0))

    def on_hang_up(self, reload: Callable[[], None], *streams: int) -> None:
        """SIGHUP asks us to read the file again. From a terminal that is gone it means the end."""
        number = getattr(signal, "SIGHUP", None)  # not on Windows
        terminals = [fd for fd in (*streams, 2) if os.isatty(fd)]

        def hung_up() -> None:
            if all(os.isatty(fd) for fd in terminals):
                reload()
            else:
                self.now(0)

        if number is not None:
            asyncio.get_running_loop().add_signal_handler(number, hung_up)

    def now(self, status: int) -> None:
        self.status = status
        self.at_once.set()
        self.host_left.set()


def _listen(fd: int, front: StdioFront, end: Ending) -> None:
    if own_streams.is_pipe(fd):
        PipeReader(fd, front.receive, end.host_left.set)
    else:
        own_streams.pump_file(fd, front.receive, end.host_left.set)


async def _drain(session: HostSession, end: Ending) -> None:
    """A host that only closed our input may still read: what is under way gets a moment to end."""
    session.when_idle(end.at_once.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN):
            await end.at_once.wait()
