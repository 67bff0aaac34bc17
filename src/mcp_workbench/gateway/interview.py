"""Calls whose servers may ask the person who made them: a form, or a visit to an address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.downstream.waiters import Loss
from mcp_workbench.era.questions import (
    ROUNDS,
    Answered,
    Question,
    may_put,
    read_input_required,
    read_needed,
    unanswered,
)
from mcp_workbench.era.revision import URL_ELICITATION_NEEDED
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.gateway.calls import Call, PythonCall
from mcp_workbench.wire import envelope
from mcp_workbench.wire.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View

Json = dict[str, Any]
OnProgress = Callable[[Json], None]

PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds before a server is called again that asked nothing
NOBODY = "the server asks for input, and nobody can be asked"


class Person(Protocol):
    """Whoever can be asked while a call runs."""

    @property
    def capabilities(self) -> Json:
        """What servers may ask for, as a host declares it: `{"elicitation": {"form": {}}}`."""
        ...

    async def answer(self, question: Question) -> Json | None:
        """The result of the question's method; None where there is none. Cancelled: taken back."""
        ...


@asynccontextmanager
async def interview(view: View, person: Person) -> AsyncGenerator[Interview]:
    """For the block, this person is asked whatever the servers of this view want to know.

    Enter it before the first server is begun: each is told at its opening what it may ask for.
    """
    async with task_scope() as scope:
        host = PersonHost(person, scope)
        yield Interview(view.for_host(host, sole=True), host)


class Interview:
    """The servers as this person has them."""

    def __init__(self, view: View, host: PersonHost) -> None:
        self.view = view
        self._host = host

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None = None,
    ) -> Json:
        """The server's own result, when all that it asked has been answered."""
        params = {"arguments": msgspec.Raw(msgspec.json.encode(arguments))}
        meta = {} if on_progress is None else {"progressToken": msgspec.Raw(b"0")}
        request = CallRequest(tool, params, meta, capabilities=self._host.declared)
        return await InterviewCall(self.view, request, on_progress, self._host).result()


class PersonHost:
    """The person as servers see them: a host that they have for themselves."""

    takes_turns = False

    def __init__(self, person: Person, scope: TaskScope) -> None:
        self._person = person
        self.scope = scope
        self._one_at_a_time = asyncio.Lock()
        self.leases: dict[ServerAddress, Any] = {}
        self.declared = msgspec.Raw(msgspec.json.encode(person.capabilities))

    @property
    def key(self) -> Hashable:
        return id(self)

    @property
    def owner(self) -> Hashable:
        return id(self)

    def asking_capabilities(self) -> Members:
        return read_members(self.declared)

    def ask(self, question: Question, caller: object, answered: Answered) -> Callable[[], None]:
        """A legacy server's question; the clock of the call that it came in stands meanwhile."""
        call = caller if isinstance(caller, Call) else None
        task = self.scope.start(self._ask(question, call, answered), f"ask {question.address}")
        return lambda: _cancel(task)

    async def _ask(self, question: Question, call: Call | None, answered: Answered) -> None:
        if call is not None:
            call.pause()
        try:
            told = await self.put(question)
        finally:
            if call is not None:
                call.proceed()
        if told is None:
            answered(
                b"", envelope.error_object(envelope.METHOD_NOT_FOUND, "this can't be answered")
            )
        else:
            answered(told, b"")

    async def put(self, question: Question) -> bytes | None:
        """The answer as a server gets it; None where only an error will do."""
        if not may_put(question, self.asking_capabilities()):
            return unanswered(question.method)
        async with self._one_at_a_time:
            told = await self._person.answer(question)
        return unanswered(question.method) if told is None else msgspec.json.encode(told)


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


class InterviewCall(PythonCall):
    """A call that goes on with the answers when its server has asked something."""

    def __init__(
        self, view: View, request: CallRequest, on_progress: OnProgress | None, host: PersonHost
    ) -> None:
        super().__init__(view, request, on_progress)
        self._host = host
        self._rounds = 0

    @property
    def host_name(self) -> str:
        return "mcp-workbench call"

    @property
    def asker(self) -> object:
        return self._host

    def is_repeatable(self) -> bool:
        return not self._rounds  # nobody is asked the same twice

    def questioned(self, result: msgspec.Raw) -> None:
        try:
            wanted = read_input_required(self.request.tool.address, result)
        except msgspec.DecodeError as error:
            self.lost(Loss("protocol_error", f"the server's question can't be read: {error}"))
            return
        state: Members = {} if wanted.state is None else {"requestState": wanted.state}
        self._start(self._answer(wanted.questions, state))

    def rejected(self, error: msgspec.Raw) -> None:
        """A legacy server may want addresses visited first; then it is called anew."""
        if envelope.read_error(error).code != URL_ELICITATION_NEEDED or self._rounds:
            super().rejected(error)
            return
        try:
            questions = read_needed(self.request.tool.address, error)
        except msgspec.DecodeError:
            super().rejected(error)
            return
        self._start(self._visit(questions, error))

    def _start(self, work: Any) -> None:
        self._rounds += 1
        if self._rounds > ROUNDS:
            work.close()
            self.lost(Loss("protocol_error", "the server never stops asking"))
        else:
            self._host.scope.start(work, f"answer {self.request.tool}")

    async def _answer(self, questions: dict[str, Question], state: Members) -> None:
        answers: Members = {}
        for key, question in questions.items():
            told = await self._host.put(question)
            if told is None:
                self.lost(Loss("protocol_error", f"the server wants {question.method}: {NOBODY}"))
                return
            answers[key] = msgspec.Raw(told)
        if not questions and self._rounds > 1:  # it wants to be asked once more, later
            await asyncio.sleep(min(PAUSE * 2 ** (self._rounds - 2), LONGEST_PAUSE))
        more = {"inputResponses": msgspec.Raw(msgspec.json.encode(answers)), **state}
        await self._call_anew({"arguments": self.request.params["arguments"], **more})

    async def _visit(self, questions: dict[str, Question], error: msgspec.Raw) -> None:
        for question in questions.values():
            told = await self._host.put(question)
            if told is None or bytes(read_members(told).get("action", b"")) != b'"accept"':
                super().rejected(error)
                return
        await self._call_anew(self.request.params)

    async def _call_anew(self, params: Members) -> None:
        self.request = msgspec.structs.replace(self.request, params=params)
        try:
            await self.view.dispatch(self)
        except WorkbenchError as error:
            self.fail(error)
