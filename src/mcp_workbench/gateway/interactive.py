"""Interactive calls: a server may require input while a call runs, from a host or from a person.

A modern server returns `input_required` in place of a result, with questions and perhaps a state. One such
result and the answers to it are a round. `InputRounds` counts the rounds, gathers the answers, and repeats
the call once all are there; a server that asks nothing wants to be called again later. Its owner puts the
questions: a session of `server`, or the `InteractiveSession` of a person who fills in forms and visits URLs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from mcp_workbench import __version__
from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.gateway.calls import Call, Door, PythonCall
from mcp_workbench.protocol.elicitation import (
    ELICIT,
    ROUNDS,
    AnswerCallback,
    InputRequired,
    Question,
    answered_action,
    may_put,
    read_input_required,
    read_needed,
    takes_forms,
    unanswered,
)
from mcp_workbench.protocol.extensions import told
from mcp_workbench.protocol.handshake import URL_ELICITATION_NEEDED
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import ErrorObject
from mcp_workbench.transport.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from mcp_workbench.gateway.approvals import Answer, Approver, Asked, SessionApprovals
    from mcp_workbench.gateway.views import View

Json = dict[str, Any]
OnProgress = Callable[[Json], None]
Withdraw = Callable[[], None]
Put = Callable[[Question, AnswerCallback], Withdraw]  # puts a question; returns what withdraws it

PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds before a server is called again that asked nothing
NOBODY = "the server asks for input, and nobody can be asked"


# Rounds of questions and answers


def read_questions(call: Call, result: msgspec.Raw) -> InputRequired | None:
    """Return the questions of an `input_required` result. Fails the call, and returns None, if they can't be read."""
    try:
        return read_input_required(call.request.tool.address, result)
    except msgspec.DecodeError as error:
        call.give_up("protocol_error", f"the server's question can't be read: {error}")
        return None


class InputRounds:
    """All rounds of one call. `put` asks a question, `repeat` sends the call again."""

    def __init__(self, call: Call, put: Put, repeat: Callable[[], None]) -> None:
        self.count = 0
        self._call = call
        self._put = put
        self._repeat = repeat
        self._withdrawals: dict[str, Withdraw] = {}
        self.required: InputRequired | None = None  # whose answers are not all there
        self.answers: Members = {}

    def next(self, required: InputRequired) -> None:
        """Put the questions of another round. Fails the call if there were too many rounds."""
        self.count += 1
        if self.count > ROUNDS:
            self._call.give_up("protocol_error", "the server never stops asking")
            return
        self.go_on(required, {})

    def go_on(self, required: InputRequired, answers: Members) -> None:
        """Put the questions of this round that have no answer so far."""
        self.required, self.answers = required, answers
        for key, question in required.questions.items():
            if key not in answers:
                answered = partial(self._answered, required, answers, key)
                self._withdrawals[key] = self._put(question, answered)
        if not required.questions and self.count > 1:
            pause = min(PAUSE * 2 ** (self.count - 2), LONGEST_PAUSE)
            repeat = partial(self._repeat_if_complete, required, answers)
            timer = asyncio.get_running_loop().call_later(pause, repeat)
            self._withdrawals[""] = timer.cancel
        else:
            self._repeat_if_complete(required, answers)

    def withdraw(self) -> None:
        """Withdraw the questions that are open."""
        withdrawals, self._withdrawals = self._withdrawals, {}
        for withdraw in withdrawals.values():
            withdraw()

    def _answered(
        self,
        required: InputRequired,
        answers: Members,
        key: str,
        result: msgspec.Raw | bytes,
        error: msgspec.Raw | bytes,
    ) -> None:
        self._withdrawals.pop(key, None)
        question = required.questions[key]
        answer = result or unanswered(question.method)
        if answer is None:
            self.withdraw()
            self._call.unanswered(question, msgspec.Raw(bytes(error)))
            return
        answers[key] = msgspec.Raw(bytes(answer))
        self._repeat_if_complete(required, answers)

    def _repeat_if_complete(self, required: InputRequired, answers: Members) -> None:
        if len(answers) < len(required.questions):
            return
        self._withdrawals.clear()
        self.repeat_with(required, answers)

    def repeat_with(self, required: InputRequired, answers: Members) -> None:
        """All answers are there."""
        self.required = None
        request = self._call.request.without_answers()
        params = {**request.params, "inputResponses": msgspec.Raw(msgspec.json.encode(answers))}
        if required.state is not None:
            params["requestState"] = required.state
        self._call.request = msgspec.structs.replace(request, params=params)
        self._repeat()


# Calls of one person


class Person(Protocol):
    """A person who can be asked while a call runs."""

    @property
    def capabilities(self) -> Json:
        """What servers may ask for, as a host declares it: `{"elicitation": {"form": {}}}`."""
        ...

    async def answer(self, question: Question) -> Json | None:
        """The result of the question's method; None if there is none. Cancelled if it is withdrawn."""
        ...


@asynccontextmanager
async def interactive_session(
    view: View, person: Person, *, sole: bool = True, folder: str = ""
) -> AsyncGenerator[InteractiveSession]:
    """While this is open, the person answers the questions of this view's servers.

    As the `sole` host, those of all servers: then enter it before the first server starts, because the
    handshake declares what it may ask for. `folder` is that of the person, if it is not ours.
    """
    async with task_scope() as scope:
        host = InteractiveHost(person, scope, folder)
        yield InteractiveSession(view.for_host(host, sole=sole), host)


class InteractiveSession:
    """Calls the servers of a view on behalf of one person."""

    def __init__(self, view: View, host: InteractiveHost) -> None:
        self.view = view
        self._host = host

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
        parent: str = "",
    ) -> Json:
        """The server's own result, after all its questions were answered; `parent` is the script that calls."""
        call = self._call(tool, arguments, on_progress)
        call.parent, call.has_details = parent, True
        return await call.result()

    async def refuse(
        self, tool: ToolIdentifier, arguments: Mapping[str, Any], error: WorkbenchError
    ) -> None:
        """End a call that is not sent: interceptors see it. Raises the error."""
        call = self._call(tool, arguments, None)
        call.fail(error)
        await call.outcome()

    def _call(
        self, tool: ToolIdentifier, arguments: Mapping[str, Any], on_progress: OnProgress | None
    ) -> InteractiveCall:
        params = {"arguments": msgspec.Raw(msgspec.json.encode(arguments))}
        meta = {} if on_progress is None else {"progressToken": msgspec.Raw(b"0")}
        request = CallRequest(tool, params, meta, capabilities=self._host.declared)
        return InteractiveCall(self.view, request, on_progress, self._host)


class InteractiveHost:
    """The person as a host whose connections are not shared."""

    takes_turns = False
    is_legacy = False

    def __init__(self, person: Person, scope: TaskScope, folder: str = "") -> None:
        self._person = person
        self.folder = folder
        self.scope = scope
        self._one_at_a_time = asyncio.Lock()
        self.leases: dict[ServerAddress, Any] = {}
        self._capabilities = read_members(msgspec.json.encode(person.capabilities))
        self.declared = msgspec.Raw(msgspec.json.encode(self.told_capabilities()))

    @property
    def key(self) -> Hashable:
        return id(self)

    @property
    def owner(self) -> Hashable:
        return id(self)

    def asking_capabilities(self) -> Members:
        return self._capabilities

    def told_capabilities(self) -> Members:
        return told(self._capabilities, {})

    def ask(
        self, question: Question, caller: object, answered: AnswerCallback
    ) -> Callable[[], None]:
        """Put a question of a legacy server; the deadline of the call that it came in is paused."""
        call = caller if isinstance(caller, Call) else None
        task = self.scope.start(self._ask(question, call, answered), f"ask {question.address}")
        return lambda: _cancel(task)

    async def _ask(self, question: Question, call: Call | None, answered: AnswerCallback) -> None:
        if call is not None:
            call.pause()
        try:
            answer = await self.put(question)
        finally:
            if call is not None:
                call.proceed()
        if answer is None:
            answered(b"", jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, "this can't be answered"))
        else:
            answered(answer, b"")

    async def put(self, question: Question) -> bytes | None:
        """The answer as a server gets it; None if only an error is possible."""
        if not may_put(question, self.asking_capabilities()):
            return unanswered(question.method)
        async with self._one_at_a_time:
            answer = await self._person.answer(question)
        return unanswered(question.method) if answer is None else msgspec.json.encode(answer)


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


class InteractiveCall(PythonCall):
    """A call that is repeated with the answers to its server's questions."""

    def __init__(
        self,
        view: View,
        request: CallRequest,
        on_progress: OnProgress | None,
        host: InteractiveHost,
    ) -> None:
        super().__init__(view, request, on_progress)
        self._host = host
        self._has_visited = False  # a URL that a legacy server required
        self._rounds = InputRounds(self, self._put, self._repeat)

    @property
    def door(self) -> Door:
        return "cli"

    @property
    def host(self) -> tuple[str, str]:
        return f"mcp-workbench {'run' if self.parent else 'call'}", __version__

    @property
    def asker(self) -> object:
        return self._host

    def is_repeatable(self) -> bool:
        return not (self._rounds.count or self._has_visited)  # nobody is asked the same twice

    def approver(self) -> Approver | str:
        if not takes_forms(self._host.asking_capabilities()):
            return "there is no terminal, or --no-input was given"
        from mcp_workbench.gateway.approvals import SessionApprovals  # loaded with the first gate

        return PersonApprover(self._host, SessionApprovals())

    def questioned(self, result: msgspec.Raw) -> None:
        required = read_questions(self, result)
        if required is not None:
            self._rounds.next(required)

    def unanswered(self, question: Question, error: msgspec.Raw) -> None:
        self.give_up("protocol_error", f"the server wants {question.method}: {NOBODY}")

    def rejected(self, error: msgspec.Raw, about: ErrorObject) -> None:
        """A legacy server may require that URLs are visited first; then it is called again."""
        if about.code != URL_ELICITATION_NEEDED or not self.is_repeatable():
            super().rejected(error, about)
            return
        try:
            questions = read_needed(self.request.tool.address, error)
        except msgspec.DecodeError:
            super().rejected(error, about)
            return
        self._has_visited = True
        refused = partial(super().rejected, error, about)
        self._host.scope.start(self._visit(questions, refused), f"answer {self.request.tool}")

    async def _visit(self, questions: dict[str, Question], refused: Callable[[], None]) -> None:
        for question in questions.values():
            answer = await self._host.put(question)
            if answer is None or bytes(read_members(answer).get("action", b"")) != b'"accept"':
                refused()
                return
        await self._dispatch()

    def put_question(self) -> Put:
        return self._put

    def _put(self, question: Question, answered: AnswerCallback) -> Callable[[], None]:
        return self._host.ask(question, None, answered)  # no request is pending that could time out

    def _repeat(self) -> None:
        self._host.scope.start(self._dispatch(), f"repeat {self.request.tool}")

    async def _dispatch(self) -> None:
        try:
            await self.view.dispatch(self)
        except WorkbenchError as error:
            self.fail(error)


class PersonApprover:
    """The person of a command, who says yes or no to one call."""

    lasting = False  # a command makes one call

    def __init__(self, host: InteractiveHost, approvals: SessionApprovals) -> None:
        self._host = host
        self.approvals = approvals

    def reply(self, asked: Asked) -> None:
        return None

    async def answer(self, asked: Asked) -> Answer:
        schema: Json = {"type": "object", "properties": {}}
        params = {"message": asked.request.message, "requestedSchema": schema}
        question = Question(asked.request.tool.address, ELICIT, msgspec.json.encode(params))
        action = answered_action(await self._host.put(question) or b"{}")
        if action == "accept":
            return "once"
        return "no" if action == "decline" else "dismissed"
