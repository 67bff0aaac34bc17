"""Composition of `serve` over stdio: what it is built from, and how it shuts down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

from mcp_workbench.core.spec import Snapshot
from mcp_workbench.follow import following
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.stdio import StdioFront
from mcp_workbench.server.tools import ToolView
from mcp_workbench.timing import deadline
from mcp_workbench.transport import stdio
from mcp_workbench.transport.stdio import Channel, PipeReader, PipeWriter
from mcp_workbench.transport.tasks import task_scope

T = TypeVar("T")
AnyWriter = PipeWriter | stdio.FileWriter

# Hosts that close our input send SIGTERM after two seconds and SIGKILL after four. The calls in flight
# and the 1.3 seconds that servers get to exit (`transport/process.py`) fit into that.
DRAIN = deadline(2.5)  # seconds for calls in flight; a signal cuts it short
HURRIED_DRAIN = deadline(1.0)  # seconds after Ctrl-C: a user waits
FLUSH = deadline(1.0)  # seconds to write the last responses
INTERRUPTED = 130  # exit status after SIGINT
_LIKE_CTRL_C = ("SIGTERM", "SIGHUP")  # SIGHUP: the terminal window was closed


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed. Ctrl-C cancels, then raises KeyboardInterrupt."""
    try:
        from uvloop import new_event_loop  # not on every system
    except ImportError:
        new_event_loop = None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def run_interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Runs a command in the event loop. SIGTERM and SIGHUP act like Ctrl-C, so that no server is left behind."""
    try:
        return run(_interruptible(main))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Cancels `main` at the first signal, so that its servers are stopped; kills them at the second."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signals = 0

    def interrupted() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            from mcp_workbench.transport.guard import guard

            guard().end_all()
        if signals <= 2 and task is not None:
            task.cancel()

    def interrupt(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(interrupted)

    with _handled(interrupt, lambda: signals > 0):
        return await main


@contextlib.contextmanager
def _handled(
    interrupt: Callable[[int, FrameType | None], None], over: Callable[[], bool]
) -> Generator[None]:
    """Sends signals to `interrupt` inside the block; after an interrupt, also behind it."""
    before = {signal.SIGINT: signal.getsignal(signal.SIGINT)}
    for name in _LIKE_CTRL_C:
        number = getattr(signal, name, None)  # Windows has fewer
        if (
            number is not None and signal.getsignal(number) is signal.SIG_DFL
        ):  # `nohup` ignores SIGHUP
            before[number] = signal.SIG_DFL
    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    finally:
        if not over():
            for number, handler in before.items():
                signal.signal(number, handler)


class Resumption(Protocol):
    """A session that another process has started."""

    def channel(self, channel: AnyWriter) -> Channel:
        """Where the session's frames go."""
        ...

    def resume(self, session: HostSession, front: StdioFront, menu: ToolView) -> None:
        """Bring the new session to the state of the old one."""
        ...


def serve(
    snapshot: Snapshot,
    *,
    opened: tuple[str, ...] = (),
    verbose: bool = False,
    resumed: Resumption | None = None,
    log_calls: str = "",
) -> int:
    """Serve one host on stdin and stdout until it disconnects; returns the exit status.

    In dynamic mode the toolboxes in `opened` show their tools from the start. `log_calls` names a
    file for one line per call.
    """
    open_log(logging.DEBUG if verbose else logging.WARNING)
    return run(_serve(snapshot, opened, resumed, log_calls))


def open_log(level: int) -> None:
    """Log to stderr. What a server writes to its stderr appears there after its address."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Attributed("mcp-workbench: %(message)s"))
    logging.basicConfig(handlers=[handler], level=level)


class _Attributed(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's word
        if server := getattr(record, "server", ""):
            record.message = f"{server}: {record.message}"
        return super().formatMessage(record)


async def _serve(
    snapshot: Snapshot, opened: tuple[str, ...], resumed: Resumption | None, log_calls: str
) -> int:
    own_in, own_out = stdio.claim_standard_streams()
    end = Ending(own_in, own_out, 2)
    end.on_signals()
    async with Gateway(snapshot, log_calls=log_calls) as gateway, task_scope() as requests:
        unread = end.host_left.set if stdio.is_pipe(own_out) else partial(end.now, 1)
        channel = stdio.open_writer(own_out, unread)
        channel.on_pressure(gateway.hold)
        menu = ToolView(gateway.view, opened)
        output = channel if resumed is None else resumed.channel(channel)
        session = HostSession(gateway.view, output, requests, menu, asked="by all servers")
        front = StdioFront(session, channel, snapshot.limits.message_bytes)
        if resumed is not None:
            resumed.resume(session, front, menu)
        _listen(own_in, front, end)
        with following(gateway, opened) as end.reload:
            await end.host_left.wait()
            session.drain()
            await _drain(session, end, snapshot.limits.drain)
    await channel.flushed(FLUSH)
    return end.status


class Ending:
    """Why and how urgently the process ends: the host left, or it received a signal, perhaps twice."""

    def __init__(self, *streams: int) -> None:
        self.host_left = asyncio.Event()
        self.at_once = asyncio.Event()  # calls in flight get no more time
        self.status = 0
        self.patience = math.inf  # seconds for calls in flight, whatever else allows
        self.reload: Callable[[], None] = lambda: None  # called on SIGHUP
        self._terminals = [fd for fd in streams if os.isatty(fd)]

    def on_signals(self) -> None:
        """Handle signals: unhandled, they would end us and leave our servers running."""
        loop = asyncio.get_running_loop()
        actions = {"SIGTERM": self.asked, "SIGHUP": self._hung_up, "SIGINT": self.interrupted}
        for name, act in actions.items():
            number = getattr(signal, name, None)  # Windows has fewer
            if number is not None:
                # Not the loop's own handlers: those are removed with it, and a later signal would
                # print a traceback, or end us with another status.
                signal.signal(number, partial(_soon, loop, act))

    def asked(self) -> None:
        """End when the calls in flight have finished; the second time, at once."""
        if self.host_left.is_set():
            self.at_once.set()
        self.host_left.set()

    def interrupted(self) -> None:
        """End with less patience; the second time kill the servers as well."""
        if self.status == INTERRUPTED:
            from mcp_workbench.transport.guard import guard

            guard().end_all()
            self.at_once.set()
        self.status = INTERRUPTED
        self.patience = HURRIED_DRAIN
        self.asked()

    def _hung_up(self) -> None:
        """SIGHUP asks to reload the file, unless the terminal is gone: then it asks to end."""
        if all(os.isatty(fd) for fd in self._terminals):
            self.reload()
        else:
            self.asked()

    def now(self, status: int) -> None:
        self.status = status
        self.at_once.set()
        self.host_left.set()


def _soon(
    loop: asyncio.AbstractEventLoop, act: Callable[[], None], number: int, frame: FrameType | None
) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has closed: the process is about to exit
        loop.call_soon_threadsafe(act)


def _listen(fd: int, front: StdioFront, end: Ending) -> None:
    if stdio.is_pipe(fd):
        PipeReader(fd, front.receive, end.host_left.set)
    else:
        stdio.pump_file(fd, front.receive, end.host_left.set)


async def _drain(session: HostSession, end: Ending, limit: float) -> None:
    """Let calls in flight finish: a host that has closed our input may still read."""
    session.when_idle(end.at_once.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(DRAIN, end.patience, limit)):
            await end.at_once.wait()
