"""Starts servers for a command: runs the event loop, and collects a report of each server."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from mcp_workbench import app
from mcp_workbench.cli.settings import Settings
from mcp_workbench.cli.terminal import QUIET_TIME, ProgressLine, say
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.upstream import context as pool_context

T = TypeVar("T")

_LIKE_CTRL_C = ("SIGTERM", "SIGHUP")  # SIGHUP: the terminal window was closed


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a command in the event loop. SIGTERM and SIGHUP act like Ctrl-C, so that no server is left behind."""
    try:
        return app.run(_interruptible(main))
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
        with suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(interrupted)

    with _handled(interrupt, lambda: signals > 0):
        return await main


@contextmanager
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


def survey(
    settings: Settings,
    snapshot: Snapshot,
    addresses: Sequence[ServerAddress],
    environ: Mapping[str, str] | None = None,
) -> list[ServerReport]:
    """Returns a report of each server, in this order; shows progress on stderr meanwhile."""
    settings.open_log()
    if not settings.verbose:  # its report says why a server is missing
        logging.getLogger(pool_context.__name__).setLevel("ERROR")
    progress = SurveyProgress(settings, addresses)
    try:
        return run(_survey(Gateway(snapshot, environ=environ), addresses, progress))
    finally:
        progress.line.clear()


class SurveyProgress:
    """Shows on a terminal one line with the servers that are still waited for; elsewhere a line per finished server."""

    def __init__(self, settings: Settings, addresses: Sequence[ServerAddress]) -> None:
        self.line = ProgressLine(wanted=settings.talkative)
        self._wanted = settings.talkative
        self._waiting = list(addresses)

    def arrived(self, report: ServerReport) -> None:
        self._waiting.remove(report.address)
        if self._wanted and not self.line.live:
            outcome = "not available" if report.reason else "ready"
            say(f"{report.address}: {outcome} ({report.seconds:.1f} s)", err=True)

    def tick(self) -> None:
        if self.line.live and self._waiting:
            self.line.show(f"waiting for {', '.join(map(str, self._waiting))}")


async def _survey(
    gateway: Gateway, addresses: Sequence[ServerAddress], progress: SurveyProgress
) -> list[ServerReport]:
    async def ask(address: ServerAddress) -> ServerReport:
        report = await gateway.view.survey(address)
        progress.arrived(report)
        return report

    async with gateway, asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(address)) for address in addresses]
        while any(not task.done() for task in asked):
            await asyncio.wait(asked, timeout=QUIET_TIME)
            progress.tick()
    return [task.result() for task in asked]
