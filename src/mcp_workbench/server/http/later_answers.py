"""Answers that a task gives: whatever fails there, the request is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_workbench.transport.http.reading import OUR_FAULT

if TYPE_CHECKING:
    from mcp_workbench.transport.http.messages import ResponseWriter
    from mcp_workbench.transport.tasks import TaskScope


def answer_later(
    scope: TaskScope, work: Coroutine[Any, Any, Any], response: ResponseWriter, name: str
) -> asyncio.Task[Any]:
    """Start work that answers a request. If it fails, which is logged, the answer is that we have failed."""
    task = scope.start(work, name)
    task.add_done_callback(partial(_ended, response))
    return task


def _ended(response: ResponseWriter, task: asyncio.Task[Any]) -> None:
    if task.cancelled() or task.exception() is None:
        return
    response.plain(OUR_FAULT)
    if not response.over:  # it has started to stream
        response.abort()
