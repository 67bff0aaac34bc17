"""The requests of a host that have to wait: one task each, found by its id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mcp_workbench.wire.tasks import TaskScope

Work = Callable[..., Coroutine[Any, Any, None]]


class Errands:
    """Runs them in the scope of their session; a fault of ours costs one of them."""

    def __init__(self, scope: TaskScope, fault: Callable[[bytes], None]) -> None:
        self._scope = scope
        self._fault = fault  # told which request failed through our doing
        self._tasks: dict[bytes, asyncio.Task[Any]] = {}

    def start(self, id: bytes, work: Work, *args: Any) -> None:
        task = self._scope.start(self._guarded(id, work, *args), f"request {id.decode()}")
        self._tasks[id] = task
        task.add_done_callback(lambda _: self._forget(id, task))

    def cancel(self, id: bytes) -> None:
        if (task := self._tasks.pop(id, None)) is not None:
            task.cancel()

    def _forget(self, id: bytes, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(id) is task:
            del self._tasks[id]

    async def _guarded(self, id: bytes, work: Work, *args: Any) -> None:
        try:
            await work(*args)  # made here: a request may be taken back before its first step
        except Exception:
            self._fault(id)
            raise
