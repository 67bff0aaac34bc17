"""The process: `serve` over stdio, event loop, signals, and live configuration changes.

`http_app` adds the port of `serve --http`, and `daemon` the workbench in the background; both run their
event loop, end and follow the configuration file as this module does.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

from mcp_workbench.config.file_access import OWNERSHIP_CODES
from mcp_workbench.config.load import FILE_NAME, FileWatch, LoadResult
from mcp_workbench.config.user_file import user_config
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.views import narrowed_to
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.timing import deadline
from mcp_workbench.transport import stdio
from mcp_workbench.transport.stdio import Channel, PipeWriter
from mcp_workbench.transport.tasks import task_scope

log = logging.getLogger(__name__)

T = TypeVar("T")
AnyWriter = PipeWriter | stdio.FileWriter

# Hosts that close our input send SIGTERM after two seconds and SIGKILL after four. The calls in flight
# and the 1.3 seconds that servers get to exit (`transport/process.py`) fit into that.
DRAIN = deadline(2.5)  # seconds for calls in flight; a signal cuts it short
HURRIED_DRAIN = deadline(1.0)  # seconds after Ctrl-C: a user waits
FLUSH = deadline(1.0)  # seconds to write the last responses
INTERRUPTED = 130  # exit status after SIGINT
_LIKE_CTRL_C = ("SIGTERM", "SIGHUP")  # SIGHUP: the terminal window was closed
_KEPT = "The configuration file has changed and can't be used; the previous configuration stays in effect."
_CHECK = "`mcp-workbench check` tells what is wrong."


# `serve` over stdio


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
        front.listen(own_in, end.host_left.set)
        with following(gateway, opened) as end.reload:
            await end.host_left.wait()
            await front.all_read()
            session.drain()
            await _drain(session, end, snapshot.limits.drain)
    await channel.flushed(FLUSH)
    return end.status


async def _drain(session: HostSession, end: Ending, limit: float) -> None:
    """Let calls in flight finish: a host that has closed our input may still read."""
    session.when_idle(end.at_once.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(DRAIN, end.patience, limit)):
            await end.at_once.wait()


# The event loop, and signals


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed. Ctrl-C cancels, then raises KeyboardInterrupt."""
    try:
        from uvloop import new_event_loop  # not on every system
    except ImportError:
        new_event_loop = None
    gc.freeze()  # the objects that exist now stay: the collector need not scan them
    gc.enable()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def run_interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Run a command. SIGTERM and SIGHUP act like Ctrl-C, so that no server is left behind."""
    try:
        return run(_interruptible(main))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Cancel `main` at the first signal, so that its servers are stopped; kill them at the second."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signals = 0

    def interrupted() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            from mcp_workbench.transport.process import guard

            guard().end_all()
        if signals <= 2 and task is not None:
            task.cancel()

    with _handled(partial(_soon, loop, interrupted), lambda: signals > 0):
        return await main


@contextlib.contextmanager
def _handled(
    interrupt: Callable[[int, FrameType | None], None], over: Callable[[], bool]
) -> Generator[None]:
    """Send signals to `interrupt` inside the block; after an interrupt, behind it as well."""
    before = {signal.SIGINT: signal.getsignal(signal.SIGINT)}
    for name in _LIKE_CTRL_C:
        number = getattr(signal, name, None)  # Windows has fewer
        # `nohup` ignores SIGHUP: it stays ignored.
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.SIG_DFL
    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    finally:
        if not over():
            for number, handler in before.items():
                signal.signal(number, handler)


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
            from mcp_workbench.transport.process import guard

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


# Live configuration changes


@contextlib.contextmanager
def following(
    gateway: Gateway,
    toolboxes: tuple[str, ...],
    *,
    brief: bool = False,
    adapted: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
) -> Generator[Callable[[], None]]:
    """Follow the configuration file for the length of the block; yields a function that reads it at once.

    `toolboxes` are those that are served, or all. `brief` hides the file's problems from hosts, which
    may be any user's; `adapted` changes each configuration before it is applied. Without a file the
    demo is served, until one is written.
    """
    origin = gateway.snapshot.origin
    follower = _Follower(gateway, toolboxes, brief=brief)
    follower.adapted = adapted
    loop = asyncio.get_running_loop()

    def on_change(outcome: LoadResult) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(follower.apply, outcome)

    accepted = any(problem.code in OWNERSHIP_CODES for problem in gateway.snapshot.warnings)
    watch = FileWatch(
        origin or FILE_NAME,
        on_change,
        optional=not origin,
        accepted=accepted,
        fallback=user_config(os.environ),
    )
    watch.start()
    try:
        yield watch.look
    finally:
        watch.end()


class _Follower:
    """Applies each version of the file to the gateway, and logs the outcome."""

    def __init__(self, gateway: Gateway, toolboxes: tuple[str, ...], *, brief: bool) -> None:
        self._gateway = gateway
        self._toolboxes = toolboxes
        self._brief = brief
        self._refused = ""  # why the file was refused when it was last read
        self._later: tuple[str, ...] = ()
        self.adapted: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot

    def apply(self, outcome: LoadResult) -> None:
        if isinstance(outcome, ConfigError):
            self._refuse(outcome)
        else:
            self._reload(outcome)

    def _refuse(self, error: ConfigError) -> None:
        problem = str(error)
        detail = _CHECK if self._brief else problem
        self._gateway.warn(f"{_KEPT} {detail}")
        if problem != self._refused:
            self._refused = problem
            log.warning("the previous configuration stays in effect: %s", problem)

    def _reload(self, wanted: Snapshot) -> None:
        wanted = narrowed_to(self.adapted(wanted), self._toolboxes)
        if not self._refused and wanted == self._gateway.snapshot:
            self._later = ()
            return  # as shortly after every start: nothing is loaded for it
        change = self._gateway.reload(wanted)
        for name in self._toolboxes:
            if name in change.before.toolboxes and name not in change.after.toolboxes:
                log.warning("the toolbox %s is served, but no longer in the file", name)
        if change.later and change.later != self._later:
            log.warning(
                "changed in the file, takes effect at the next start: %s", ", ".join(change.later)
            )
        self._later = change.later
        if self._refused:
            self._refused = ""
            log.warning("the configuration file is valid again: %s", change)
        elif change.anything:
            log.info("the configuration was reloaded: %s", change)
