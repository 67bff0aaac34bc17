"""Tasks that end with the block that started them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from types import TracebackType
from typing import Any, Self, TypeVar

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class TaskScope:
    """Owns the tasks it starts: logs and contains their failures, cancels and awaits them at its end."""

    new_context: Callable[[], Context] = Context  # for each task

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `work` in a context of its own, so that it does not inherit its caller's variables."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=name, context=self.new_context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %r", task.get_name(), error, exc_info=error)

    async def end(self) -> None:
        """Cancel the running tasks and wait for them, even when cancelled once meanwhile."""
        cancelled = False
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError:
                if cancelled:  # the second time, give up
                    raise
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError


async def comes_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, also in a task that was cancelled; returns whether it is set.

    There, `asyncio.timeout` of the first 3.11 releases mistakes its own timeout for a cancellation.
    """
    waiting = asyncio.get_running_loop().create_task(event.wait())
    try:
        await asyncio.wait((waiting,), timeout=seconds)
    finally:
        waiting.cancel()
    return event.is_set()


async def completed(work: Coroutine[Any, Any, Result]) -> Result:
    """Await work that must not be interrupted: a cancellation waits until it has ended."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()  # nobody else looks at it
        raise asyncio.CancelledError
    return task.result()


@asynccontextmanager
async def task_scope() -> AsyncGenerator[TaskScope]:
    """A scope that is left only when all its tasks have ended."""
    scope = TaskScope()
    try:
        yield scope
    finally:
        await scope.end()


class Lifetime:
    """A base class whose lifetime is one generator of nested `async with` blocks, in `_life`."""

    _living: AbstractAsyncContextManager[None] | None = None

    def _life(self) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self._living = self._life()
        await self._living.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        living, self._living = self._living, None
        return await living.__aexit__(kind, error, trace) if living else None
