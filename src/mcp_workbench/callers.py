"""Whoever made a call: told of its outcome exactly once, in the era of its host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.catalogue import read_object
from mcp_workbench.core.errors import CallFailed, ServerError, WorkbenchError
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.waiters import Loss, Waiter
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.translate import PAIRS, Unanswerable, asks_for_input, result_for
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Outcome
from mcp_workbench.wire.pending import NEVER

RESTART = 0.25  # seconds before a server behind a URL that nobody answers for is tried once more


class Way(Protocol):
    """How a call came to its server: what is lost on it may be sent once more."""

    def again(self, caller: Caller, loss: Loss) -> asyncio.Task[Any]: ...


class Caller(Waiter):
    """One call under way. A subclass says what becomes of its outcome."""

    connection: Connection | None = None
    number = 0
    way: Way | None = None
    plain = False  # both ends are legacy, and its result passes as it is
    on_leaving: Callable[[], None] | None = (
        None  # told when a call that had to wait is about to be sent
    )
    _again: asyncio.Task[Any] | None = None  # it is being sent once more, or was

    def __init__(self, call: ToolCall) -> None:
        self.call = call

    def begun(self, connection: Connection, number: int, way: Way) -> None:
        self.connection, self.number, self.way = connection, number, way
        self.plain = not connection.modern and not self.call.modern_host

    def cancel(self, reason: str) -> None:
        """Take the call back; the server is told, and nobody is answered."""
        if self._again is not None:
            self._again.cancel()
        if self.connection is not None:
            self.connection.conversation.cancel(self.number, reason)

    def settled(self, answer: Outcome) -> None:
        if answer.error:
            self.refused(answer.error)
            return
        if self.plain:
            self.answered(answer.result)
            return
        modern_server = self.connection is not None and self.connection.modern
        if modern_server and asks_for_input(answer.result):
            self.questioned(answer.result)
            return
        try:
            result = result_for(PAIRS[self.call.modern_host, modern_server], answer.result, STAMPS)
        except Unanswerable as error:
            self.lost(Loss("protocol_error", str(error)))
            return
        self.answered(result)

    def lost(self, loss: Loss) -> None:
        if self.way is not None and self._again is None and self._may_send_again(loss):
            self._again = self.way.again(self, loss)
        else:
            self.report(loss)

    def report(self, loss: Loss) -> None:
        """There will be no result."""
        tool, ran, later = self.call.tool, loss.may_have_run, loss.retry_after
        error = CallFailed(loss.code, tool, loss.reason, may_have_run=ran, retry_after=later)
        self.failed(error)

    def _may_send_again(self, loss: Loss) -> bool:
        if not self.is_repeatable():
            return False
        from mcp_workbench.core.again import may_send_again  # not before something is lost

        harmless = self.is_harmless()
        return may_send_again(loss.code, may_have_run=loss.may_have_run, harmless=harmless)

    def is_repeatable(self) -> bool:
        """Has nothing happened beside the call that would have to happen again?"""
        return True

    def is_harmless(self) -> bool:
        """Would a second run change nothing, as far as the tool says?"""
        from mcp_workbench.core.again import is_harmless

        known = {} if self.connection is None else self.connection.catalogue.tools
        definition = known.get(self.call.tool.tool)
        return definition is not None and is_harmless(definition.raw)

    def pause(self) -> None:
        """A person is being asked: the call's clock stops."""
        if self.connection is not None:
            self.connection.conversation.pending.postpone(self.number, NEVER)

    def proceed(self) -> None:
        """The clock starts anew."""
        if self.connection is not None:
            deadline = time.monotonic() + self.connection.spec.timeout
            self.connection.conversation.pending.postpone(self.number, deadline)

    # What a subclass decides

    def questioned(self, result: msgspec.Raw) -> None:
        """A modern server wants to know something first."""
        self.lost(Loss("protocol_error", "the server asks for input, and nobody can be asked"))

    def answered(self, result: msgspec.Raw | bytes) -> None:
        raise NotImplementedError

    def refused(self, error: msgspec.Raw) -> None:
        raise NotImplementedError

    def failed(self, error: WorkbenchError) -> None:
        raise NotImplementedError

    def progressed(self, params: msgspec.Raw) -> None:
        raise NotImplementedError


async def send_again(caller: Caller, loss: Loss, send: Callable[[Caller], Awaitable[None]]) -> None:
    """Send a lost call once more; where that fails too, its caller is told."""
    if loss.code == "connect_failed":
        await asyncio.sleep(RESTART)
    try:
        await send(caller)
    except WorkbenchError as error:
        if loss.may_have_run:
            caller.report(loss)  # that it may have run matters more than why not again
        else:
            caller.failed(error)


class PythonCaller(Caller):
    """A Python program that awaits the result."""

    def __init__(
        self, call: ToolCall, on_progress: Callable[[dict[str, Any]], None] | None
    ) -> None:
        super().__init__(call)
        self._on_progress = on_progress
        self._future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def result(self) -> dict[str, Any]:
        try:
            return await self._future
        except asyncio.CancelledError:
            self.cancel("the caller was cancelled")
            raise

    def answered(self, result: msgspec.Raw | bytes) -> None:
        try:
            self._settle(read_object(result))
        except msgspec.DecodeError as error:
            self.lost(Loss("protocol_error", f"the server's result has no usable form: {error}"))

    def refused(self, error: msgspec.Raw) -> None:
        told = envelope.read_error(error)
        self.failed(ServerError(told.code, told.message, bytes(error)))

    def failed(self, error: WorkbenchError) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def progressed(self, params: msgspec.Raw) -> None:
        if self._on_progress is not None:
            notice = read_object(params)
            notice.pop("progressToken", None)
            self._on_progress(notice)

    def _settle(self, result: dict[str, Any]) -> None:
        if not self._future.done():
            self._future.set_result(result)
