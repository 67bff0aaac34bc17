"""Calls: one request in flight, its route, its one outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.catalogue import Definition, read_object
from mcp_workbench.core.errors import CallFailed, ServerError, WorkbenchError
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Cancelled,
    Completed,
    Failed,
    Interceptor,
    Rejected,
    change,
    observe,
)
from mcp_workbench.protocol.handshake import MISSING_CAPABILITY, STAMPS
from mcp_workbench.protocol.translation import (
    PAIRS,
    Unanswerable,
    UnknownResultType,
    asks_for_input,
    result_for,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import NEVER, ErrorObject, Outcome
from mcp_workbench.upstream.conversation import Failure, ResponseHandler

if TYPE_CHECKING:
    from mcp_workbench.gateway.approvals import Approval, Approver
    from mcp_workbench.gateway.interactive import Put
    from mcp_workbench.gateway.routes import Route
    from mcp_workbench.gateway.task_runs import TaskRun
    from mcp_workbench.gateway.views import View
    from mcp_workbench.protocol.elicitation import Question
    from mcp_workbench.protocol.task_messages import TaskWish
    from mcp_workbench.upstream.connection import Connection

Door = Literal["stdio", "http", "daemon", "cli", "python", "page"]


class Call(ResponseHandler):
    """Sent by its route, perhaps more than once; it has one outcome, which a subclass delivers."""

    route: Route | None = None  # on which it was sent last
    connection: Connection | None = None
    number = 0  # of the request on that connection
    plain = False  # a result is delivered unchanged: no translation, no interceptor needs it
    approval: Approval | None = None  # a person's, if its tool needs one
    results_owner: object = None  # who may read on in a result that is cut; nobody: it is not cut
    explains = False  # the outcome may have hints for its reader
    session: Any = None  # of the host that sent it
    sent = 0.0  # when it was sent last, by the monotonic clock; 0: never
    answered = 0.0  # when its server's answer was there, if somebody looks at it
    has_details = False  # one of the next five is set; each look at a default takes time
    passed: tuple[Interceptor, ...] = ()  # that made it wait, and have let it pass
    connecting = 0.0  # seconds that it has waited for its server to be ready
    is_resent = False
    parent = ""  # the script that made it
    record = 0  # the number of its line in the audit
    pinned: Connection | None = None  # the only one on which it can be sent
    task_wish: TaskWish | None = None  # its server was asked to run it as a task
    task: TaskRun | None = None  # the task that we wait for
    needs_result = False  # whatever tasks its host has: something is done with the result
    has_tasks = False  # we declared the extension on behalf of its host
    trace: Any = None  # its spans, if calls are traced
    _task: asyncio.Task[Any] | None = None  # in which it waits, or is resent

    def __init__(self, view: View, request: CallRequest) -> None:
        self.view = view
        self.request = request
        self.started = time.monotonic()

    @property
    def door(self) -> Door:
        """Through which it came."""
        return "python"

    @property
    def host(self) -> tuple[str, str]:
        """Name and version of the program that sent it."""
        return "", ""

    @property
    def revision(self) -> str:
        """The protocol revision that its host speaks; empty without a host."""
        return ""

    @property
    def definition(self) -> Definition | None:
        """The tool as its server lists it."""
        known = {} if self.connection is None else self.connection.catalogue.tools
        return known.get(self.request.tool.tool)

    # Sending

    def run(self, work: Any, name: str) -> None:
        """Continue in a task of the pool, which ends with the call."""
        self._task = self.view.gateway.pool.start(work, name)

    def cancel(self, reason: str) -> None:
        """Cancel the call, also at its server; nobody gets a reply."""
        self.abandon(reason)
        self.finish(Cancelled(reason))

    def abandon(self, reason: str) -> None:
        """Stop waiting for the server, and notify it. The call has no outcome yet."""
        if self._task is not None:
            self._task.cancel()
        if self.connection is not None:
            self.connection.conversation.cancel(self.number, reason)
        if self.task is not None:
            self.task.cancel()

    # Outcome

    def settled(self, answer: Outcome) -> None:
        if self.task is not None:
            self.task.settled(answer)
        elif answer.error:
            error = jsonrpc.read_error(answer.error)
            if error.code != MISSING_CAPABILITY or not self._calls_with_tasks(answer.error):
                self.rejected(answer.error, error)
        elif self.task_wish is None or not self._begins_task(answer.result):
            self._answered(answer)

    def _answered(self, answer: Outcome) -> None:
        """The server has returned a result, or a question."""
        modern_server = self.connection is not None and self.connection.modern
        if modern_server and asks_for_input(answer.result):
            self.questioned(answer.result)
            return
        try:
            pair = PAIRS[self.request.modern_host, modern_server]
            result = result_for(pair, answer.result, STAMPS)
        except Unanswerable as error:
            if isinstance(error, UnknownResultType) and self._begins_task(answer.result):
                return
            if not (isinstance(error, UnknownResultType) and self._has_extensions()):
                self.lost(Failure("protocol_error", str(error)))
                return
            result = answer.result
        self.finish(Completed(result))

    def _begins_task(self, result: msgspec.Raw) -> bool:
        from mcp_workbench.gateway.task_runs import begin_task  # seldom needed

        return self.connection is not None and begin_task(self, result)

    def _calls_with_tasks(self, error: msgspec.Raw) -> bool:
        from mcp_workbench.gateway.task_runs import call_with_tasks  # seldom needed

        return call_with_tasks(self, error)

    def _has_extensions(self) -> bool:
        """Whether the result may be of a kind that an extension defines, which host and server share."""
        from mcp_workbench.protocol.extensions import declares_others

        return self.request.modern_host and declares_others(self.request.capabilities)

    def lost(self, loss: Failure) -> None:
        if self.task is not None:
            self.task.cancel()
            self.report(loss)
        elif not self.is_resent and self._may_send_again(loss):
            self.is_resent = self.has_details = True
            self.run(self.view.resend(self, loss), f"resend {self.request.tool}")
        else:
            self.report(loss)

    def report(self, loss: Failure) -> None:
        """Fail with this loss."""
        tool, ran, later = self.request.tool, loss.may_have_run, loss.retry_after
        self.fail(CallFailed(loss.code, tool, loss.reason, may_have_run=ran, retry_after=later))

    def give_up(self, code: str, reason: str) -> None:
        """The server's answer is of no use. The call may have run."""
        self.fail(CallFailed(code, self.request.tool, reason, may_have_run=True))

    def fail(self, error: WorkbenchError) -> None:
        self.finish(Failed(error))

    def finish(self, outcome: CallOutcome) -> None:
        """End the call: the interceptors see the outcome, then it is delivered."""
        way = self.view.without_route if self.route is None else self.route
        for interceptor in way.after:
            outcome = change(interceptor, self, outcome)
        observe(way.recorders, self, outcome)
        self.deliver(outcome)
        observe(way.observers, self, outcome)

    # Resending

    def _may_send_again(self, loss: Failure) -> bool:
        if self.route is None or not self.is_repeatable() or self.approval is not None:
            return False  # an approval is used once
        from mcp_workbench.core.call_request import may_send_again

        harmless = self.route.is_harmless
        return may_send_again(loss.code, may_have_run=loss.may_have_run, harmless=harmless)

    def is_repeatable(self) -> bool:
        """Whether it can be sent again without other effects, such as asking a person twice."""
        return True

    # Deadline

    def pause(self) -> None:
        """Suspend the deadline: a person is being asked."""
        if self.connection is not None:
            self.connection.conversation.pending.postpone(self.number, NEVER)

    def proceed(self) -> None:
        """Restart the deadline."""
        if self.connection is not None:
            deadline = time.monotonic() + self.connection.spec.timeout
            self.connection.conversation.pending.postpone(self.number, deadline)

    # What a subclass decides

    @property
    def takes_tasks(self) -> bool:
        """Whether its sender can be given the handle of a task in place of a result."""
        return False

    def given_task(self, id: str) -> None:
        """Its legacy host is about to get this handle of a task."""

    def put_question(self) -> Put | None:
        """What puts a question of its task to a person; None if nobody can be asked."""
        return None

    def approver(self) -> Approver | str:
        """Who may approve it; a text says why nobody can be asked."""
        return "this caller has no person"

    def questioned(self, result: msgspec.Raw) -> None:
        """A modern server requires input first."""
        self.give_up("protocol_error", "the server asks for input, and nobody can be asked")

    def unanswered(self, question: Question, error: msgspec.Raw) -> None:
        """Nobody answered a question that the server insists on."""
        self.finish(Rejected(error))

    def rejected(self, error: msgspec.Raw, about: ErrorObject) -> None:
        """The server answered with an error, of which this was read."""
        self.finish(Rejected(error, about=about))

    def deliver(self, outcome: CallOutcome) -> None:
        raise NotImplementedError

    def progressed(self, params: msgspec.Raw) -> None:
        raise NotImplementedError


class PythonCall(Call):
    """A Python program awaits the result."""

    def __init__(
        self,
        view: View,
        request: CallRequest,
        on_progress: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        super().__init__(view, request)
        self._on_progress = on_progress
        self._future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def result(self) -> dict[str, Any]:
        """Send it and await its result. Raises a WorkbenchError if there is none."""
        try:
            await self.view.dispatch(self)
        except WorkbenchError as error:
            self.fail(error)
        except asyncio.CancelledError:
            self.cancel("the caller was cancelled")
            raise
        return await self.outcome()

    async def outcome(self) -> dict[str, Any]:
        """Await the result of a call that was sent, or has ended."""
        try:
            return await self._future
        except asyncio.CancelledError:
            self.cancel("the caller was cancelled")
            raise

    def approver(self) -> Approver | str:
        gateway = self.view.gateway
        if gateway.on_approval is None:
            return "the program has no handler (on_approval of Workbench)"
        from mcp_workbench.gateway.approvals import ProgramApprover  # loaded with the first gate

        return ProgramApprover(gateway.approvals, gateway.on_approval)

    def deliver(self, outcome: CallOutcome) -> None:
        if self._future.done():
            return
        if isinstance(outcome, Completed):
            self._complete(outcome.result)
        elif isinstance(outcome, Rejected):
            error = outcome.read()
            self._future.set_exception(ServerError(error.code, error.message, bytes(outcome.error)))
        elif isinstance(outcome, Failed):
            self._future.set_exception(outcome.error)

    def _complete(self, result: msgspec.Raw | bytes) -> None:
        try:
            self._future.set_result(read_object(result))
        except msgspec.DecodeError as error:
            why = f"the server's result has no usable form: {error}"
            failed = CallFailed("protocol_error", self.request.tool, why, may_have_run=True)
            self._future.set_exception(failed)

    def progressed(self, params: msgspec.Raw) -> None:
        if self._on_progress is not None:
            notice = read_object(params)
            notice.pop("progressToken", None)
            self._on_progress(notice)
