"""A command that starts servers sees them out, whichever signal ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from mcp_workbench import app

T = TypeVar("T")

_LIKE_CTRL_C = ("SIGTERM", "SIGHUP")  # a closed terminal window is the second one


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Being told to end is Ctrl-C: without that, servers would be left behind."""
    try:
        return app.run(_interruptible(main))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Told once, `main` is cancelled and its servers are seen out; told again, they are killed."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    told = 0

    def interrupted() -> None:
        nonlocal told
        told += 1
        if told > 1:
            from mcp_workbench.wire.guard import guard  # loaded already, if there are servers

            guard().end_all()
        if told <= 2 and task is not None:
            task.cancel()

    def interrupt(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(interrupted)

    with _handled(interrupt, lambda: told > 0):
        return await main


@contextmanager
def _handled(
    interrupt: Callable[[int, FrameType | None], None], over: Callable[[], bool]
) -> Generator[None]:
    """Signals go to `interrupt` inside the block, and if all is over by then, also behind it."""
    before = {signal.SIGINT: signal.getsignal(signal.SIGINT)}
    for name in _LIKE_CTRL_C:
        number = getattr(signal, name, None)  # Windows has fewer
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one
            before[number] = signal.SIG_DFL
    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    finally:
        if not over():
            for number, handler in before.items():
                signal.signal(number, handler)
