"""`run_script`: the request of a host that runs a script, and the calls that the script makes.

A `ScriptRequest` lives in a task of the pool, not of its session: a modern host is asked by answering its request, and
comes back with another one while the script waits. If all its open calls can be moved, the script does not stay here
meanwhile (`server/moved_scripts.py`). A `ScriptCall` takes the path of every call, on behalf of the same
host; its parent is the script. Whatever a person is asked because of it is asked through the request (`ask`), and the
script's clock stands still meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.core.script_texts import printed_text
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.approvals import Answer, Asked
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interactive import InputRounds, read_questions
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Cancelled,
    Completed,
    Failed,
    Rejected,
)
from mcp_workbench.gateway.result_budget import within_budget
from mcp_workbench.gateway.script_extra import ANSWER_BUDGET
from mcp_workbench.gateway.scripts import (
    CallEnd,
    ScriptAnswer,
    ScriptFailed,
    ScriptLimits,
    ScriptRun,
    ScriptSource,
    refusal,
    unknown_arguments,
)
from mcp_workbench.protocol.elicitation import (
    AnswerCallback,
    Question,
    for_legacy_host,
    may_put,
    takes_forms,
)
from mcp_workbench.protocol.extensions import without_tasks
from mcp_workbench.server import text
from mcp_workbench.server.call_approvals import HostApprover, approval_answer, approval_question
from mcp_workbench.server.host_calls import HostCall
from mcp_workbench.server.parse import RequestError
from mcp_workbench.server.wrong_arguments import read_last
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import ErrorObject, Outcome

if TYPE_CHECKING:
    from mcp_workbench.gateway.approvals import Approver
    from mcp_workbench.gateway.interactive import Put
    from mcp_workbench.gateway.suspended_scripts import AskedApproval, AskedInput
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.suspended_calls import Suspension

PROGRESS = "notifications/progress"
STATE_START = b'"wbs1.'  # of a `requestState` that is a whole script
NOTHING = msgspec.Raw(b"")
META_KEY = "mcp-workbench/calls"  # in `_meta` of an answer: `_meta` of the results, with their tool
SCRIPT_KEY = "mcp-workbench/script"  # likewise: the `parent` of its calls in the audit
HELD_KEY = "mcp-workbench/held"  # in `_meta` of questions: why only this process takes the answers
_NOT_INHERITED = ("progressToken",)  # members of `_meta` that belong to the script's request alone
_BUG = msgspec.Raw(
    jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, "the workbench failed; see its log")
)
MOVED = b'{"resultType":"input_required"}'  # how its calls end in the audit
_WRITE = 'Write {"code": "…"}, a program as text.'


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str


_read = msgspec.json.Decoder(_Arguments).decode


class ScriptRequest(HostCall):
    """A host's request to run a script. It is no call itself: interceptors see those that the script makes."""

    def __init__(self, session: HostSession, id: bytes, request: CallRequest) -> None:
        super().__init__(session, id, request)
        self.script: ScriptRun | None = None
        is_flat = session.view.snapshot.tool_mode == "dynamic"
        self.source = ScriptSource("", session.view.principal, is_flat)
        self.calls: dict[int, ScriptCall] = {}  # by the interpreter's number
        self.asked: dict[int, AskedApproval | AskedInput] = {}  # before, of calls that go on
        self.answers: Members = {}  # of the host, to what was asked then
        self.budgets: set[int] = set()  # of the servers that it has called
        self.changed = asyncio.Event()  # a call of it has ended, or asks something
        self.held = ""  # why it does not leave this process while its host is asked

    @property
    def is_held(self) -> bool:
        return True  # the script goes on when the host is back

    def begin(self) -> None:
        """Run the script in a task that outlives this request."""
        self.session.under_way[self.id] = self
        self.run(self._answer(), f"script {self.id.decode()}")

    async def _answer(self) -> None:
        outcome: CallOutcome | None = None
        try:
            outcome = Completed(await self._result())
        except WorkbenchError as error:
            outcome = Completed(text.error_result(error))
        except RequestError as error:
            outcome = Rejected(msgspec.Raw(error.error), is_ours=True)
        except asyncio.CancelledError:
            outcome = Cancelled("the host has cancelled the script")
            raise
        finally:
            self.deliver(outcome or Rejected(_BUG, is_ours=True))  # its task logs a bug

    async def _result(self) -> bytes:
        worker, limits = self.view.gateway.scripts, ScriptLimits()
        self.source.code = self._code()
        self.script = script = ScriptRun(worker, self.source, limits, self._make, self._report)
        try:
            answer = await script.answer()
        except ScriptFailed as error:
            return text.error_result(error, printed_text(error.printed))
        return self._within_budget(_answer_result(answer, script.id))

    def _code(self) -> str:
        try:
            return read_last(_read, self.request.params["arguments"]).code
        except (msgspec.DecodeError, RecursionError):
            raise InvalidCall("run_script takes a script as 'code'", hint=_WRITE) from None

    async def _make(self, tool: ToolIdentifier, arguments: msgspec.Raw, number: int) -> CallEnd:
        meta = {key: raw for key, raw in self.request.meta.items() if key not in _NOT_INHERITED}
        host = self.request
        capabilities = without_tasks(host.capabilities)
        request = CallRequest(tool, {"arguments": arguments}, meta, host.modern_host, capabilities)
        call = ScriptCall(self, request)
        spec = self.view.snapshot.find(tool.address)
        if spec is not None:
            self.budgets.add(self.view.snapshot.toolbox(tool.toolbox).budget(spec))
        self.calls[number] = call
        try:
            return await call.ended(self.asked.pop(number, None))
        finally:
            del self.calls[number]
            self.changed.set()

    # The answer

    def _within_budget(self, result: bytes) -> bytes:
        budget = min(self.budgets - {0}, default=ANSWER_BUDGET)
        kept, owner = self.view.gateway.kept_results, self.session.results_owner
        return bytes(within_budget(result, budget, kept, owner))

    def _report(self, count: int, tool: str) -> None:
        """Notify the host of a call that has ended."""
        token = self.request.meta.get("progressToken")
        if token is not None and not self.suspended:
            params: dict[str, Any] = {"progressToken": token, "progress": count, "message": tool}
            self.session.notify(PROGRESS, msgspec.json.encode(params), self.id)

    def finish(self, outcome: CallOutcome) -> None:
        self.deliver(outcome)

    def cancel(self, reason: str) -> None:
        self.abandon(reason)

    def reply(self, result: msgspec.Raw | bytes) -> None:
        self.session.reply_own(self.id, bytes(result))

    # Questions

    def ask(self, question: Question, answered: AnswerCallback) -> Callable[[], None]:
        """Put a question of one of its calls to the host's person. Returns what withdraws it."""
        requests = self.session.elicitation.input_requests
        if not may_put(question, read_members(self.request.capabilities)):
            why = "the host's request does not declare the capability"
            answered(b"", jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, why))
            return lambda: None
        if self.request.modern_host:
            return requests.suspended_calls.suspend(self, question, answered)
        return requests.ask(self.session, question, self.id, answered)

    def moves(self, suspension: Suspension, hold: Callable[[], None]) -> bool:
        from mcp_workbench.server.moved_scripts import move  # only where a person is asked

        suspension.gathering = True  # further questions join the open ones

        async def ask() -> None:
            self.held = "see the log"  # if there is a bug
            try:
                self.held = await move(self)
            finally:
                suspension.gathering = False
                if self.held:
                    hold()

        self.view.gateway.pool.start(ask(), f"ask for {self.id.decode()}")
        return True

    def leave(self) -> None:
        """End the script here without an outcome: another process goes on with it."""
        for call in self.calls.values():
            call.leave()
        if self._task is not None:
            self._task.cancel()

    def reply_questions(self, result: bytes) -> None:
        if self.held:
            meta = msgspec.json.encode({HELD_KEY: self.held})
            result = b'%b,"_meta":%b}' % (result[:-1], meta)
        super().reply_questions(result)

    def resume(self, session: HostSession, id: bytes) -> None:
        if self.suspension is not None:
            self.suspension.rounds = 0  # each of its calls may ask
        super().resume(session, id)


def _answer_result(answer: ScriptAnswer, script: str) -> bytes:
    shown = answer.text or "(The script printed nothing, and its last line has no value.)"
    blocks: list[Any] = [{"type": "text", "text": shown}, *answer.content]
    meta: dict[str, Any] = {SCRIPT_KEY: script}
    if answer.metas:
        meta[META_KEY] = [{"tool": tool, "_meta": raw} for tool, raw in answer.metas]
    return msgspec.json.encode({"content": blocks, "_meta": meta})


class ScriptCall(HostCall):
    """A call that a script makes."""

    needs_result = True

    def __init__(self, script: ScriptRequest, request: CallRequest) -> None:
        super().__init__(script.session, script.id, request)
        self.parent = "" if script.script is None else script.script.id
        self.has_details = True
        self._script = script
        self.approval_asked: Asked | None = None  # a person is asked whether it is sent
        self.rounds: InputRounds | None = None
        self._is_moved = False  # with its script, to another process
        self._waiting_servers = 0  # questions for whose answer a server waits
        self._withdrawals: list[Callable[[], None]] = []
        self._end: asyncio.Future[CallOutcome] = asyncio.get_running_loop().create_future()

    @property
    def results_owner(self) -> object:
        return None  # the script gets results whole; its answer is cut

    async def ended(self, asked: AskedApproval | AskedInput | None = None) -> CallEnd:
        """Send it, and await its outcome. If that is cancelled, so is the call.

        `asked` is what its person was asked about it in another process.
        """
        try:
            if asked is None or self._takes_answers(asked):
                await self._send()
            outcome = await self._end
        except asyncio.CancelledError:
            if not self._is_moved:
                self.cancel("the script has ended")
            raise
        return CallEnd(outcome, self.request, self.definition)

    def leave(self) -> None:
        """End it here: another process goes on with its script."""
        self._is_moved = True
        self.abandon("its script goes on elsewhere")
        self.finish(Completed(MOVED))

    def _takes_answers(self, asked: AskedApproval | AskedInput) -> bool:
        """Whether it is to be sent now: with its approval, or to ask again. Otherwise it goes on by itself."""
        from mcp_workbench.gateway.suspended_scripts import AskedInput  # loaded by then
        from mcp_workbench.server.moved_scripts import take_approval, take_input

        if not isinstance(asked, AskedInput):
            return take_approval(self, asked, self._script.answers)
        required, answers = take_input(self, asked, self._script.answers)
        self.rounds = InputRounds(self, self._put_round, self._repeat)
        self.rounds.count = asked.round
        self.rounds.go_on(required, answers)
        return False

    async def _send(self) -> None:
        try:
            tool, view = self.request.tool, self.view
            error = refusal(view.snapshot, tool)
            if error is not None:
                raise error
            connection = await view.connected(view.spec(tool.address))
            definition = connection.catalogue.tools.get(tool.tool)
            if definition is not None and (wrong := unknown_arguments(definition, self.request)):
                raise InvalidCall(wrong)
            if not view.start(self):
                await view.dispatch(self)
        except WorkbenchError as error:
            self.fail(error)

    def fail(self, error: WorkbenchError) -> None:
        self.finish(Failed(error))  # nobody signs in within a script

    def settled(self, answer: Outcome) -> None:
        Call.settled(self, answer)  # no host waits for the bytes

    def deliver(self, outcome: CallOutcome) -> None:
        if not self._end.done() and not self._is_moved:
            self._end.set_result(outcome)

    def progressed(self, params: msgspec.Raw) -> None:
        return  # the host is notified of calls that have ended

    def rejected(self, error: msgspec.Raw, about: ErrorObject) -> None:
        Call.rejected(self, error, about)

    # Questions

    def approver(self) -> Approver | str:
        if not takes_forms(read_members(self.request.capabilities)):
            return "the host does not support elicitation, or no forms"
        return ScriptApprover(self)

    def is_repeatable(self) -> bool:
        return self.rounds is None

    @property
    def can_move(self) -> bool | None:
        """Whether another process could go on with it; None: not now, but perhaps soon."""
        if self._waiting_servers:
            return False
        required = None if self.rounds is None else self.rounds.required
        is_asked = required is not None and bool(required.questions)
        return True if is_asked or self.approval_asked is not None else None

    def put(self, question: Question, answered: AnswerCallback) -> Callable[[], None]:
        """Put a question of a server that waits for the answer."""
        return self.ask(question, answered, 1)

    def ask(
        self, question: Question, answered: AnswerCallback, waiting: int = 0
    ) -> Callable[[], None]:
        """Put a question; the deadline of this call and the clock of the script stand still meanwhile.

        `waiting` is how many servers wait for its answer.
        """
        script = self._script.script
        end_pause = (lambda: None) if script is None else script.clock.pause()
        self.pause()
        self._waiting_servers += waiting

        def over() -> None:
            nonlocal waiting
            self._waiting_servers -= waiting
            waiting = 0
            end_pause()
            self.proceed()

        def answer(result: msgspec.Raw | bytes, error: msgspec.Raw | bytes) -> None:
            over()
            answered(result, error)

        withdraw = self._script.ask(question, answer)
        self._script.changed.set()

        def withdrawn() -> None:
            over()
            withdraw()

        self._withdrawals.append(withdrawn)
        return withdrawn

    def withdraw(self) -> None:
        withdrawals, self._withdrawals = self._withdrawals, []
        for withdraw in withdrawals:
            withdraw()
        if self.rounds is not None:
            self.rounds.withdraw()

    def questioned(self, result: msgspec.Raw) -> None:
        required = read_questions(self, result)
        if required is None:
            return
        declared = read_members(self.request.capabilities)
        for question in required.questions.values():
            if not may_put(question, declared):
                why = f"the server wants {question.method}, and this host can't be asked for that"
                self.give_up("protocol_error", why)
                return
        if self.rounds is None:
            self.rounds = InputRounds(self, self._put_round, self._repeat)
        self.rounds.next(required)

    def put_question(self) -> Put:
        return self._put_round

    def _put_round(self, question: Question, answered: AnswerCallback) -> Callable[[], None]:
        if not self.request.modern_host:
            from secrets import token_urlsafe

            question = for_legacy_host(question, token_urlsafe(16))
        return self.ask(question, answered)

    def _repeat(self) -> None:
        self.run(self._send(), f"repeat {self.request.tool}")


class ScriptApprover(HostApprover):
    """The host's person, who is asked through the script's request."""

    def __init__(self, call: ScriptCall) -> None:
        super().__init__(call)
        self._script_call = call

    def reply(self, asked: Asked) -> None:
        return None  # the script's request is answered, not this call's

    async def answer(self, asked: Asked) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(result: msgspec.Raw | bytes, error: msgspec.Raw | bytes) -> None:
            if not answer.done():
                answer.set_result(approval_answer(result, lasting=asked.request.lasting))

        call = self._script_call
        call.approval_asked = asked
        withdraw = call.ask(approval_question(asked), answered)
        try:
            return await answer
        finally:
            call.approval_asked = None
            withdraw()


def run_script(session: HostSession, id: bytes, members: Members, meta: Members) -> None:
    """Answer a call of `run_script`, which may bring answers to questions of an earlier one."""
    declared = session.elicitation.declared
    tool = ToolIdentifier("", "", "run_script")
    request = CallRequest(tool, members, meta, session.era.modern, declared)
    call = ScriptRequest(session, id, request)
    if bytes(memoryview(members.get("requestState", NOTHING))[:6]) == STATE_START:
        from mcp_workbench.server.moved_scripts import go_on

        go_on(call)
        return
    if session.elicitation.take_answers(call):  # otherwise a suspended script goes on
        call.begin()
