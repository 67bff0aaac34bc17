"""A host's requests in flight: each is answered exactly once, or never if it was cancelled.

`OpenRequests` has all of them, `HostCall` is one that reaches a server, `RequestTasks` runs those that have to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.raw_json import TooManyParts, read_members
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.gateway.arguments import may_be_error
from mcp_workbench.gateway.calls import Call, Door
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Completed,
    Failed,
    Rejected,
    Relayed,
    observe,
)
from mcp_workbench.protocol.elicitation import progress_of, takes_forms
from mcp_workbench.protocol.handshake import FOR_THE_HOST, OF_OUR_HOP, URL_ELICITATION_NEEDED
from mcp_workbench.protocol.translation import with_token
from mcp_workbench.server import text
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import ErrorObject, Outcome

if TYPE_CHECKING:
    import asyncio

    from mcp_workbench.gateway.approvals import Approver
    from mcp_workbench.gateway.interactive import InputRounds, Put
    from mcp_workbench.protocol.elicitation import AnswerCallback, Question
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.suspended_calls import Suspension
    from mcp_workbench.transport.tasks import TaskScope

Work = Callable[..., Coroutine[Any, Any, None]]


class OpenRequests(dict[bytes, "HostCall | None"]):
    """A host's requests in flight, by id; those that go to no server have no call."""

    def has(self, call: HostCall) -> bool:
        """Whether its request still waits for this call."""
        return self.get(call.id) is call

    def waiting_for(self, address: ServerAddress) -> HostCall | None:
        """The oldest call that can't be sent before this server is ready."""
        calls = [call for call in self.values() if call is not None]
        return next((call for call in calls if call.waits_for(address)), None)


class HostCall(Call):
    """A call whose outcome is the reply to a host's request."""

    explains = True
    suspended = False  # its request was answered with a question, and the host has not come back
    input_rounds: InputRounds | None = None  # of a modern server, while the host is legacy
    suspension: Suspension | None = None  # questions of a legacy server, while the host is modern
    related_task = ""  # the host's id of the task whose result it waits for
    visit = ""  # what the person did with the address of a sign-in, if a modern host was given one
    _was_asked = False  # to sign in
    _furthest = -1.0  # the last progress that the host was notified of
    _outcome: CallOutcome | None = None  # while it is suspended

    def __init__(
        self, session: HostSession, id: bytes, request: CallRequest, *, flat: bool = False
    ) -> None:
        self.view = session.view  # as the base does: one call less for each call
        self.request = request
        self.started = monotonic()
        self.session = session
        self.id = id
        self._flat = flat  # called by a flat name

    @property
    def host(self) -> tuple[str, str]:
        return self.session.host

    @property
    def door(self) -> Door:
        return self.session.door

    @property
    def revision(self) -> str:
        return self.session.era.revision

    @property
    def results_owner(self) -> object:
        return None if self._flat else self.session.results_owner  # an app needs the whole result

    @property
    def asker(self) -> object:
        """On whose behalf the call is made."""
        return self.session

    @property
    def is_held(self) -> bool:
        """Whether it goes on by itself when its host has answered a question."""
        return self.connection is not None

    # Its outcome

    def settled(self, answer: Outcome) -> None:
        result = answer.result
        if self.plain and result and not may_be_error(result):
            route = self.route
            if route is None or not (route.recorders or route.observers):
                self.session.reply(self.id, result)
                return
            self.answered = monotonic()
            relayed = Relayed(result)
            if route.recorders:
                observe(route.recorders, self, relayed)
            self.session.reply(self.id, result)
            observe(route.observers, self, relayed)
        else:
            super().settled(answer)

    def rejected(self, error: msgspec.Raw, about: ErrorObject) -> None:
        needs_url = about.code == URL_ELICITATION_NEEDED
        if needs_url and self.request.modern_host:
            self.session.elicitation.url_required(self, error)
        else:
            super().rejected(error, about)

    def fail(self, error: WorkbenchError) -> None:
        """Fail, unless the person can sign in now: then the call goes on afterwards, once."""
        if error.code == "needs_login" and not self._was_asked:
            from mcp_workbench.server.sign_in import can_visit, sign_in  # rarely needed

            if can_visit(self):
                self._was_asked = True
                self.connection = None
                self.run(sign_in(self, error), f"sign in for {self.request.tool}")
                return
        super().fail(error)

    def end(self, error: WorkbenchError) -> None:
        """Fail, whatever the error is."""
        super().fail(error)

    def deliver(self, outcome: CallOutcome) -> None:
        if self.suspended:
            self._outcome = outcome
        elif isinstance(outcome, Completed):
            self.reply(outcome.result)
        elif isinstance(outcome, Rejected):
            self.refuse(outcome)
        elif isinstance(outcome, Failed):
            self.reply_failure(outcome.error)

    def reply(self, result: msgspec.Raw | bytes) -> None:
        self.session.reply(self.id, result)

    def refuse(self, outcome: Rejected) -> None:
        """Relay a server's error unchanged; for a call by flat name it becomes an error result."""
        error, hint = outcome.error, outcome.hint
        if outcome.is_ours:
            self.session.refuse(self.id, error)
            return
        read = outcome.read()
        if read.code in OF_OUR_HOP and self.connection is not None and self.connection.modern:
            why = f"the server refused what the workbench sent: {read.message} ({read.code})"
            error = msgspec.Raw(jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, why))
        if self._flat and read.code not in FOR_THE_HOST:
            message = f"[{self.request.tool}] Error: {read.message}"
            self.session.reply_own(self.id, text.error_texts("server_error", message, hint))
            return
        if hint:
            from mcp_workbench.gateway.arguments import error_with_hint

            error = error_with_hint(error, read.message, hint)
        self.session.refuse(self.id, error)

    def reply_failure(self, error: WorkbenchError) -> None:
        message = text.flat_text(error, self.request.tool) if self._flat else error.message
        self.session.reply_own(self.id, text.failed_call(error, message))

    # Progress

    def progressed(self, params: msgspec.Raw) -> None:
        token = self.request.meta.get("progressToken")
        if token is None or self.suspended or not self._is_further(params):
            return
        try:
            notice = with_token(params, token)
        except TooManyParts:
            return
        self.session.notify("notifications/progress", notice, self.id)

    def _is_further(self, params: msgspec.Raw) -> bool:
        """Whether this is more than the host knows: a call that is repeated with answers starts over."""
        if self.request.modern_host or self.connection is None or not self.connection.modern:
            return True
        progress = progress_of(params)
        if progress is None or progress > self._furthest:
            self._furthest = self._furthest if progress is None else progress
            return True
        return False

    # Questions

    def approver(self) -> Approver | str:
        if not takes_forms(read_members(self.request.capabilities)):
            return "the host does not support elicitation, or no forms"
        from mcp_workbench.server.call_approvals import HostApprover  # only where it is configured

        return HostApprover(self)

    def put(self, question: Question, answered: AnswerCallback) -> Callable[[], None] | None:
        """Put a question that came with this call in a way of its own; None if there is none."""
        return None

    def is_repeatable(self) -> bool:
        return not self.suspended and self.input_rounds is None  # nobody is asked the same twice

    @property
    def takes_tasks(self) -> bool:
        if not self.request.modern_host:
            return self.session.offers_tasks
        from mcp_workbench.protocol.task_messages import declares_tasks  # where a server has tasks

        return declares_tasks(self.request.capabilities)

    def given_task(self, id: str) -> None:
        from mcp_workbench.server.task_watches import follow  # where a host has tasks

        ref = self.view.gateway.tasks.read(id, self.view)
        place = self.pinned or self.connection
        if ref is not None and place is not None:
            follow(self.session, id, ref, place)

    def put_question(self) -> Put:
        requests = self.session.elicitation.input_requests
        if self.request.modern_host:  # it is asked in a reply, and comes back with the answer
            return partial(requests.suspended_calls.suspend, self)
        return partial(requests.put, self)

    def questioned(self, result: msgspec.Raw) -> None:
        self.session.elicitation.input_required(self, result)

    def abandon(self, reason: str) -> None:
        self.withdraw()
        super().abandon(reason)

    def withdraw(self) -> None:
        """Withdraw the questions that the host was asked for this call."""
        if self.input_rounds is not None:
            self.input_rounds.withdraw()

    def waits_for(self, address: ServerAddress) -> bool:
        """Whether it is sent only when this server is ready. Its target may be known only in part."""
        if self.connection is not None:
            return False
        tool = self.request.tool
        return tool.toolbox in ("", address.toolbox) and tool.server in ("", address.server)

    def stop(self) -> None:
        """Do not send it: its server asks something during the handshake."""
        self.session.stop(self.id)

    def suspend(self) -> bool:
        """Wait for the host to come back. Returns False if the request is not in flight any more."""
        if self.suspended or not self.session.under_way.has(self):
            return False
        self.suspended, self.plain = True, False
        self.pause()
        return True

    def moves(self, suspension: Suspension, hold: Callable[[], None]) -> bool:
        """Whether it asks its host by itself, in a way that binds it to no process; `hold` is how it can't."""
        return False

    def give_way(self) -> bool:
        """Give up a suspended call whose host has not come back."""
        if self.suspended and self.suspension is not None:
            self.suspension.expire()
        return self.suspended

    def reply_questions(self, result: bytes) -> None:
        self.session.reply(self.id, result)

    def resume(self, session: HostSession, id: bytes) -> None:
        """The host is back with a new request; an outcome that is there already is delivered at once."""
        self.session, self.id, self.suspended = session, id, False
        session.under_way[id] = self
        self.proceed()
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            self.deliver(outcome)


class OwnCall(HostCall):
    """A request for one of our own tools, which may wait for servers but calls none."""

    def cancel(self, reason: str) -> None:
        self.abandon(reason)


class RequestTasks:
    """Requests that have to wait, each in a task of its own. A bug of ours fails one request only."""

    def __init__(self, scope: TaskScope, on_bug: Callable[[bytes], None]) -> None:
        self._scope = scope
        self._on_bug = on_bug  # called with the request that failed because of a bug
        self._tasks: dict[bytes, asyncio.Task[Any]] = {}

    @property
    def any(self) -> bool:
        return bool(self._tasks)

    def start(self, id: bytes, work: Work, *args: Any) -> None:
        task = self._scope.start(work(*args), f"request {id.decode()}")  # logs what it raises
        self._tasks[id] = task
        task.add_done_callback(lambda _: self._ended(id, task))

    def cancel(self, id: bytes) -> None:
        if (task := self._tasks.pop(id, None)) is not None:
            task.cancel()

    def _ended(self, id: bytes, task: asyncio.Task[Any]) -> None:
        if self._tasks.get(id) is not task:  # cancelled
            return
        del self._tasks[id]
        if not task.cancelled() and task.exception() is not None:
            self._on_bug(id)
