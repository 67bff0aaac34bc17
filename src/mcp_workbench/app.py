"""Composition: what is built from what, and how long each part lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from mcp_workbench.core.spec import Snapshot
from mcp_workbench.surface.session import HostSession
from mcp_workbench.wire import stdio
from mcp_workbench.wire.tasks import TaskScope, task_scope
from mcp_workbench.workbench import Workbench

T = TypeVar("T")

DRAIN = 3.0  # seconds for requests under way after our input has ended
FLUSH = 1.0  # seconds for the last answers to leave


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
    try:
        run(_serve(snapshot, opened))
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(snapshot: Snapshot, opened: tuple[str, ...]) -> None:
    own_in, own_out = stdio.claim_standard_streams()
    host_left, asked_to_end = asyncio.Event(), asyncio.Event()
    _end_on_signals(host_left, asked_to_end)
    async with Workbench(snapshot) as workbench, task_scope() as requests:
        channel = await stdio.open_writer(own_out)
        session = HostSession(workbench, channel, requests, opened)
        await _listen(own_in, session, host_left, requests)
        await host_left.wait()
        await _drain(session, asked_to_end)
    await channel.flushed(FLUSH)


async def _listen(
    fd: int, session: HostSession, host_left: asyncio.Event, scope: TaskScope
) -> None:
    if stdio.is_pipe(fd):
        await stdio.open_reader(fd, session.receive, host_left.set)
    else:
        scope.start(stdio.pump_file(fd, session.receive, host_left.set), "standard input")


async def _drain(session: HostSession, asked_to_end: asyncio.Event) -> None:
    """A host that only closed our input may still read: what is under way gets a moment to end."""
    session.when_idle(asked_to_end.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN):
            await asked_to_end.wait()


def _end_on_signals(host_left: asyncio.Event, asked_to_end: asyncio.Event) -> None:
    """SIGTERM has no handler by default and would leave our servers behind."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        host_left.set()
        asked_to_end.set()

    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, end)
