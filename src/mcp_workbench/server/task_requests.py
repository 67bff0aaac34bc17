"""Requests of hosts about tasks: each goes to the server that has the task, in the words of its era.

Hosts of 2026-07-28 have `tasks/get`, `tasks/update` and `tasks/cancel`, if they declare the extension; those of
2025-11-25 have `tasks/get`, `tasks/result` and `tasks/cancel`. A legacy server's task is translated for a modern host:
its result is fetched when it has ended, and its questions when it has some.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.raw_json import Members, changed, read_members, read_name
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.interceptors import Completed, Rejected
from mcp_workbench.gateway.task_handles import HeldTask, TaskEnded
from mcp_workbench.protocol.elicitation import read_input_required
from mcp_workbench.protocol.handshake import MISSING_CAPABILITY, STAMPS
from mcp_workbench.protocol.task_messages import (
    CANCEL,
    COMPLETED,
    FAILED,
    GET,
    INPUT_REQUIRED,
    LIST,
    RESULT,
    TERMINAL,
    UPDATE,
    WORKING,
    Task,
    declares_tasks,
    inlined_result,
    missing_tasks,
    read_task,
    with_related,
)
from mcp_workbench.protocol.translation import complete
from mcp_workbench.server.parse import RequestError, refuse_cursor
from mcp_workbench.server.primitive_requests import PrimitiveCall, Result
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Outcome

if TYPE_CHECKING:
    from mcp_workbench.protocol.task_ids import TaskRef
    from mcp_workbench.server.session import HostSession

encode = msgspec.json.encode

_MODERN = (GET, UPDATE, CANCEL)
_LEGACY = (GET, RESULT, CANCEL, LIST)
UNKNOWN = "Unknown task"
GATHER = 0.02  # seconds in which further questions of the same task join the first
QUESTION_WAIT = 1.0  # seconds for a server to send the question that its task has
_ACK = b'{"resultType":"complete"}'


def handle_task_request(
    session: HostSession, method: str, id: bytes, members: Members, meta: Members
) -> None:
    """Answer a request of a host about a task. Raises a RequestError."""
    modern, view = session.era.modern, session.view
    if method not in (_MODERN if modern else _LEGACY) or not (modern or session.offers_tasks):
        raise RequestError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}")
    if method == LIST:
        refuse_cursor(members)
        session.run(id, _list, session, id)
        return
    declared = session.elicitation.declared
    if modern and not declares_tasks(declared):
        raise missing_extension()
    token = _token(members)
    ref = view.gateway.tasks.read(token, view)
    if ref is None:
        raise RequestError(jsonrpc.INVALID_PARAMS, UNKNOWN)
    target = ToolIdentifier(ref.address.toolbox, ref.address.server, method)
    params = {**members, "taskId": msgspec.Raw(encode(ref.id))}
    call = TaskCall(session, id, CallRequest(target, params, meta, modern, declared, method))
    call.given, call.ref = token, ref
    session.under_way[id] = call
    call.begin()


async def _list(session: HostSession, id: bytes) -> None:
    tasks = await session.view.gateway.tasks.listed(session.view)
    session.reply(id, encode({"tasks": tasks}))


def missing_extension() -> RequestError:
    """The error for a host that does not declare the extension."""
    why = (
        "this needs the extension io.modelcontextprotocol/tasks, which the request does not declare"
    )
    return RequestError(MISSING_CAPABILITY, why, missing_tasks())


def _token(members: Members) -> str:
    try:
        return read_name(members["taskId"])
    except (KeyError, msgspec.DecodeError):
        raise RequestError(jsonrpc.INVALID_PARAMS, "params.taskId must be a string") from None


def why_ended(ref: TaskRef, reason: str) -> str:
    """What a host is told of a task whose process is gone."""
    return f"[{ref.address}] Error: {reason}; the task has ended with it, and may have run"


def failed_task(ref: TaskRef, why: str) -> Task:
    """The last state of such a task."""
    now = datetime.now(UTC).isoformat()
    return Task(ref.id, FAILED, why, ref.created or now, now)


class TaskCall(PrimitiveCall):
    """One such request."""

    given = ""  # the host's id of the task
    ref: TaskRef
    _seen: Task | None = None  # a legacy server's, whose result is fetched for a modern host
    _refusal: Rejected | None = None  # of a cancellation

    # Sending

    def begin(self) -> None:
        """Send it on the connection that leads to its task."""
        place = self.view.gateway.tasks.connection(self.ref)
        if place is None or isinstance(place, TaskEnded):
            self._begin_without(place)
            return
        self.pinned = place
        if not self.request.modern_host:
            self.given_task(self.given)
        if self._is_translated(modern_server=place.modern) and self._answers_alone():
            return
        try:
            if not self.view.start(self):
                self._report_end(TaskEnded(place.reason))
        except WorkbenchError as error:
            self.fail(error)
            return
        if self.request.method == RESULT:
            self.pause()  # its server answers when the task has ended
            self.related_task = self.given

    def _begin_without(self, ended: TaskEnded | None) -> None:
        """The connection on which the task was created is gone, or never was here."""
        if self.ref.is_remote:
            self.begin_elsewhere()
        elif ended is None:
            self._refuse_unknown()
        else:
            self._report_end(ended)

    def begin_elsewhere(self) -> None:
        """Send it on another connection to the same server."""
        self.session.start(self)

    def _is_translated(self, *, modern_server: bool) -> bool:
        return self.request.modern_host and not modern_server

    def _answers_alone(self) -> bool:
        """Answer a modern host's request that a legacy server does not have."""
        place = self.pinned
        assert place is not None  # noqa: S101 - for the type
        if self.request.method == UPDATE:
            held = self.view.gateway.tasks.held(self.ref)
            if held is not None:
                held.answer(_answers(self.request.params))
        elif self.request.method != CANCEL or place.primitives.declared.tasks_cancel:
            return False
        self.finish(Completed(_ACK))
        return True

    def _refuse_unknown(self) -> None:
        why = (
            f"{UNKNOWN}: it has expired, or the process of {self.ref.address} that runs it belongs to "
            "another workbench, or has ended"
        )
        self._reject(jsonrpc.INVALID_PARAMS, why)

    def _reject(self, code: int, why: str) -> None:
        error = msgspec.Raw(jsonrpc.error_object(code, why))
        self.finish(Rejected(error, is_ours=True))

    def _report_end(self, ended: TaskEnded) -> None:
        """The process that had the task is gone."""
        why = why_ended(self.ref, ended.reason)
        method, modern = self.request.method, self.request.modern_host
        if method == RESULT or (method == CANCEL and not modern):
            code = jsonrpc.INTERNAL_ERROR if method == RESULT else jsonrpc.INVALID_PARAMS
            self._reject(code, why)
        elif method != GET:
            self.finish(Completed(_ACK))
        else:
            task = failed_task(self.ref, why)
            if modern:
                error = jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, why)
                self._describe(task, error=msgspec.Raw(error))
            else:
                self.finish(Completed(encode(task.legacy(self.given))))

    # The answer

    def settled(self, answer: Outcome) -> None:
        modern_server = self.connection is not None and self.connection.modern
        if not self._is_translated(modern_server=modern_server):
            self.change_result = self._with_own_id
            super().settled(answer)
        elif self.request.method == CANCEL:
            self._cancelled(answer)
        elif self.request.method == UPDATE:  # this connection knows of no questions
            self.finish(Completed(_ACK))
        elif self._seen is not None:
            self._fetched(self._seen, answer)
        elif answer.error:
            super().settled(answer)
        else:
            self._look(answer.result)

    def _with_own_id(self, result: Result) -> Result:
        """The answer of a server of the host's era, with the id that the host knows."""
        if self.request.method == RESULT:
            return with_related(result, self.given)
        try:
            members = read_members(result)
            wanted: dict[str, bytes | None] = {}
            if "taskId" in members:
                wanted["taskId"] = encode(self.given)
            if "inputRequests" in members:
                questions = read_input_required(self.ref.address, msgspec.Raw(bytes(result)))
                wanted["inputRequests"] = encode(_asked(questions.questions))
            return changed(result, wanted) if wanted else result
        except msgspec.DecodeError:
            return result  # malformed: the host decides

    # A legacy server's task for a modern host

    def _look(self, result: msgspec.Raw) -> None:
        try:
            task = read_task(result)
        except msgspec.DecodeError as error:
            self.give_up("protocol_error", f"the server's task can't be read: {error}")
            return
        if task.status in (COMPLETED, FAILED):
            self._seen = task
            assert self.route is not None and self.connection is not None  # noqa: S101, PT018
            params = {"taskId": msgspec.Raw(encode(self.ref.id))}
            until = self.sent + self.connection.spec.timeout
            self.route.send_on(self, RESULT, params, until)
        elif task.status == INPUT_REQUIRED:
            self.run(self._ask(task), f"questions of {self.ref.address}")
        else:
            self._describe(task)

    async def _ask(self, task: Task) -> None:
        """Describe a task that has questions, which its server sends while its result is waited for."""
        tasks, place = self.view.gateway.tasks, self.connection
        assert place is not None  # noqa: S101 - it was sent
        held = tasks.held(self.ref)
        if held is None or held.is_over:
            held = tasks.hold(self.ref, place, self.request.capabilities)
            await _first_questions(held)
        if held.questions:
            self._describe(task, inputRequests=msgspec.Raw(encode(_asked(held.questions))))
        else:  # it has the answers, and goes on soon
            task.status = WORKING
            self._describe(task)

    def _fetched(self, task: Task, answer: Outcome) -> None:
        """The result of a task that has ended. Its failure may be a result, too (`isError`)."""
        if answer.error:
            task.status = FAILED
            self._describe(task, error=answer.error)
        else:
            task.status = COMPLETED
            self._describe(task, result=msgspec.Raw(inlined_result(answer.result)))

    def _describe(self, task: Task, **more: msgspec.Raw) -> None:
        self.finish(Completed(complete(encode({**task.modern(self.given), **more}), STAMPS)))

    def _cancelled(self, answer: Outcome) -> None:
        """Legacy servers refuse to cancel what has ended; for modern hosts that is no error."""
        if self._refusal is not None:
            if answer.error or _status(answer.result) not in TERMINAL:
                self.finish(self._refusal)
            else:
                self.finish(Completed(_ACK))
        elif not answer.error:
            self.finish(Completed(_ACK))
        else:
            self._refusal = Rejected(answer.error)
            assert self.route is not None and self.connection is not None  # noqa: S101, PT018
            params = {"taskId": msgspec.Raw(encode(self.ref.id))}
            self.route.send_on(self, GET, params, self.sent + self.connection.spec.timeout)


async def _first_questions(held: HeldTask) -> None:
    """Wait for the first question; others of the same moment come with it."""
    try:
        async with asyncio.timeout(QUESTION_WAIT):
            await held.changed.wait()
        await asyncio.sleep(GATHER)
    except TimeoutError:
        return


def _asked(questions: Any) -> dict[str, Any]:
    return {
        key: {"method": question.method, "params": msgspec.Raw(question.params)}
        for key, question in questions.items()
    }


def _answers(params: Members) -> Members:
    try:
        return read_members(params["inputResponses"])
    except (KeyError, msgspec.DecodeError):
        return {}


def _status(result: msgspec.Raw) -> str:
    try:
        return read_task(result).status
    except msgspec.DecodeError:
        return ""
