"""Task runs: a server answers a call with a task, its host has no tasks, and we wait for the result.

The call stays one call: it has one outcome, the result of the task. A legacy server is asked for that with one
request that lasts (`tasks/result`); a modern one is polled (`tasks/get`), and gets answers to its questions with
`tasks/update`. The time limit of the server counts for the whole task, without the time that a person takes to answer.
A call that is cancelled, or too late, cancels its task.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.gateway.interactive import InputRounds
from mcp_workbench.gateway.task_handles import relay_legacy, relay_modern
from mcp_workbench.protocol.elicitation import InputRequired, may_put
from mcp_workbench.protocol.task_messages import (
    CANCEL,
    CANCELLED,
    COMPLETED,
    FAILED,
    GET,
    INPUT_REQUIRED,
    LONGEST_ID,
    RESULT,
    UPDATE,
    ModernTask,
    created_task,
    modern_created,
    read_modern_task,
    requires_tasks,
    task_questions,
    with_related,
    with_tasks,
)
from mcp_workbench.protocol.translation import PAIRS
from mcp_workbench.timing import pause
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import NEVER, Outcome
from mcp_workbench.upstream.conversation import Failure, ResponseHandler

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.gateway.routes import Route
    from mcp_workbench.upstream.connection import Connection

encode = msgspec.json.encode

POLL = pause(1.0)  # seconds between two looks at a task, if its server does not say
SHORTEST, LONGEST = 0.05, 30.0  # seconds that a server can ask for


def begin_task(call: Call, result: msgspec.Raw) -> bool:
    """Take the task that a server has created for a call; False if this result is no task."""
    assert call.connection is not None  # noqa: S101 - it was sent
    if call.connection.modern:
        return _begin_modern(call, result)
    created = created_task(result)
    if created is None:
        return False
    if call.task_wish is not None and call.task_wish.is_relayed:
        if _is_usable(call, created.task_id):
            relay_legacy(call, result, created)
    else:
        start_run(call, created.task_id, None)
    return True


def _begin_modern(call: Call, result: msgspec.Raw) -> bool:
    task = modern_created(result)
    if task is None or not (call.has_tasks or call.takes_tasks):
        return False  # it is none, or was not asked for
    if call.has_tasks:
        start_run(call, task.task_id, task.poll_interval_ms)
    elif _is_usable(call, task.task_id):
        relay_modern(call, result, task)
    return True


def call_with_tasks(call: Call, error: msgspec.Raw) -> bool:
    """A modern server runs a call only as a task: send it again as a host that has tasks. Nothing has run.

    False if the error is another one, or the host itself has to know.
    """
    request, route = call.request, call.route
    if request.modern_host and not call.needs_result:
        return False
    if route is None or call.has_tasks or not requires_tasks(error):
        return False
    call.has_tasks = True
    call.request = msgspec.structs.replace(request, capabilities=with_tasks(request.capabilities))
    route.send_again(call)
    return True


def start_run(call: Call, task_id: str, poll_interval: float | None) -> None:
    if _is_usable(call, task_id):
        call.task = TaskRun(call, task_id)
        call.task.begin(poll_interval)


def _is_usable(call: Call, task_id: str) -> bool:
    """Whether the server's id is short enough; otherwise the call fails."""
    if len(task_id) <= LONGEST_ID:
        return True
    call.give_up("protocol_error", f"the id of its task is longer than {LONGEST_ID} characters")
    return False


class TaskRun:
    """The task of one call, until the call ends."""

    def __init__(self, call: Call, task_id: str) -> None:
        assert call.connection is not None and call.route is not None  # noqa: S101, PT018
        self._call = call
        self._id = task_id
        self._route: Route = call.route
        self._connection: Connection = call.connection
        self._until = call.sent + self._connection.spec.timeout
        self._timer: asyncio.TimerHandle | None = None
        self._asked: set[str] = set()  # keys of questions
        self._questions: TaskQuestions | None = None
        self._is_over = False
        conversation = self._connection.conversation
        # Between two polls, too, the connection is in use, and we hear of its end.
        self._place = conversation.pending.add(_InUse(call), NEVER) if self._is_polled else 0
        self._token = call.number  # of its progress, for the whole task
        conversation.task_tokens[self._token] = call
        conversation.task_owners[task_id] = call

    @property
    def _is_polled(self) -> bool:
        return self._connection.modern

    def begin(self, poll_interval: float | None) -> None:
        """Wait for the result."""
        if self._is_polled:
            self._poll_later(poll_interval)
        else:
            self._send(RESULT)

    def settled(self, answer: Outcome) -> None:
        """The server has answered a request about the task."""
        if answer.error:
            self._end()
            self._call.rejected(answer.error, jsonrpc.read_error(answer.error))
        elif not self._connection.modern:
            self._complete(msgspec.Raw(with_related(answer.result)))
        elif self._questions is not None:  # it has the answers
            self._questions = None
            self._poll_later(0.0)
        else:
            self._seen(answer.result)

    def _seen(self, result: msgspec.Raw) -> None:
        """A modern server describes the task."""
        try:
            task = read_modern_task(result)
        except msgspec.DecodeError as error:
            self._give_up(f"the server's task can't be read: {error}")
            return
        if task.status == INPUT_REQUIRED:
            self._ask(task, result)
        elif task.status == COMPLETED and task.result:
            self._complete(task.result)
        elif task.status == FAILED and task.error:
            self._end()
            self._call.rejected(task.error, jsonrpc.read_error(task.error))
        elif task.status == CANCELLED:
            self._end()
            self._call.give_up("server_error", "the server has cancelled the task")
        else:
            self._poll_later(task.poll_interval_ms)

    def _complete(self, result: msgspec.Raw) -> None:
        self._end()
        self._call.settled(Outcome(result))

    # Time

    def _poll_later(self, milliseconds: float | None) -> None:
        seconds = POLL if milliseconds is None else milliseconds / 1000
        seconds = min(max(seconds, SHORTEST), LONGEST)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._poll)

    def _poll(self) -> None:
        self._timer = None
        if time.monotonic() < self._until:
            self._send(GET)
        else:
            self._call.lost(
                Failure("timeout", f"timed out after {self._connection.spec.timeout:g} s")
            )

    def _send(self, method: str, more: dict[str, Any] | None = None) -> None:
        params = _params(self._id, more)
        self._route.send_on(self._call, method, params, max(self._until, time.monotonic() + 0.1))

    # Questions of a modern server

    def _ask(self, task: ModernTask, result: msgspec.Raw) -> None:
        call = self._call
        try:
            required = task_questions(call.request.tool.address, result)
        except msgspec.DecodeError as error:
            self._give_up(f"the server's question can't be read: {error}")
            return
        questions = {key: q for key, q in required.questions.items() if key not in self._asked}
        if not questions:  # it has the answers, and goes on soon
            self._poll_later(task.poll_interval_ms)
            return
        put = call.put_question()
        declared = read_members(call.request.capabilities)
        for question in questions.values():
            if put is None or not may_put(question, declared):
                self._give_up(
                    f"the server wants {question.method}, and this host can't be asked for that"
                )
                return
        assert put is not None  # noqa: S101 - for the type
        self._asked |= questions.keys()
        since = time.monotonic()

        def answered(answers: Members) -> None:
            self._until += time.monotonic() - since
            self._send(UPDATE, {"inputResponses": answers})

        self._questions = TaskQuestions(call, put, answered)
        self._questions.next(InputRequired(questions, None))

    def _give_up(self, reason: str) -> None:
        self.cancel()
        self._call.give_up("protocol_error", reason)

    # End

    def cancel(self) -> None:
        """Cancel the task at its server, if it still runs. Its answer does not matter."""
        if self._is_over:
            return
        self._end()
        cancel_task(self._connection, self._id, self._call)

    def _end(self) -> None:
        """No more is done about the task."""
        self._is_over = True
        self._call.task = None
        if self._timer is not None:
            self._timer.cancel()
        if self._questions is not None:
            self._questions.withdraw()
        conversation = self._connection.conversation
        if conversation.pending.settle(self._place) is not None:
            conversation.dropped += 1
        conversation.task_tokens.pop(self._token, None)
        conversation.task_owners.pop(self._id, None)


class TaskQuestions(InputRounds):
    """Questions of a task: the answers are sent to it, and nothing is repeated."""

    def __init__(self, call: Call, put: Any, answered: Any) -> None:
        super().__init__(call, put, lambda: None)
        self._deliver = answered

    def repeat_with(self, required: InputRequired, answers: Members) -> None:
        self._deliver(answers)


def cancel_task(connection: Connection, task_id: str, call: Call) -> None:
    """Ask the server to cancel a task."""
    conversation = connection.conversation
    if conversation.over or not (connection.modern or connection.primitives.declared.tasks_cancel):
        return
    from mcp_workbench.protocol.handshake import STAMPS
    from mcp_workbench.protocol.primitive_messages import request_params

    request = msgspec.structs.replace(call.request, meta={})
    pair = PAIRS[request.modern_host, connection.modern]
    params = request_params(pair, _params(task_id, None), request, 0, STAMPS)
    number = conversation.begin(CANCEL, params, _Ignored())
    conversation.pending.postpone(number, time.monotonic() + connection.spec.timeout)


def _params(task_id: str, more: dict[str, Any] | None) -> Members:
    members = {"taskId": task_id, **(more or {})}
    return {key: msgspec.Raw(encode(value)) for key, value in members.items()}


class _InUse(ResponseHandler):
    """Stands for a task that is polled among the requests in flight; there is no such request."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def settled(self, answer: Outcome) -> None:
        """Nothing was sent."""

    def lost(self, failure: Failure) -> None:
        if self._call.task is not None:  # otherwise a request about the task was lost, too
            self._call.lost(failure)

    def progressed(self, params: msgspec.Raw) -> None:
        """There is none."""


class _Ignored(ResponseHandler):
    """A response that changes nothing."""

    def settled(self, answer: Outcome) -> None:
        """Whether it was cancelled is the server's business."""

    def lost(self, failure: Failure) -> None:
        """The server is gone, and the task with it."""

    def progressed(self, params: msgspec.Raw) -> None:
        """There is none."""
