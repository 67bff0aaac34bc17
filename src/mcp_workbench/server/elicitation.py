"""Questions of servers to a host (elicitation, sampling, roots), for every pair of eras.

A legacy server asks in a request of its own, a modern one in a result that requires input. A legacy host is asked by
a request of ours, a modern one in the reply to its request. So there are four ways:

- legacy server, legacy host: the question is passed on (`InputRequests.ask`);
- legacy server, modern host: the call is suspended until the host comes back (`suspended_calls`);
- modern server, legacy host: the host is asked, and the call repeated with the answers (`InputRequests.drive`);
- modern server, modern host: the result is passed on, its state signed (`InputRequests.relay`).

`Elicitation` belongs to one session. `InputRequests` is what is open: that of a session on stdio, or that of all
requests of one principal over HTTP, where the answer comes with another request than the question.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.gateway.interceptors import Completed, Rejected
from mcp_workbench.protocol.elicitation import (
    ELICIT,
    ROOTS,
    AnswerCallback,
    InputRequired,
    Question,
    asking,
    for_legacy_host,
    input_required,
    may_put,
    read_needed,
)
from mcp_workbench.protocol.extensions import APPS, OURS, SKILLS, TASKS, read_extensions, told
from mcp_workbench.protocol.handshake import MISSING_CAPABILITY
from mcp_workbench.server.host_calls import HostCall
from mcp_workbench.server.parse import RequestError
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Envelope

if TYPE_CHECKING:
    from mcp_workbench.gateway.approvals import SessionApprovals
    from mcp_workbench.protocol.signed_state import SignedState
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.suspended_calls import Expiry, RequestStates
    from mcp_workbench.upstream.connection import Connection

NOTHING = msgspec.Raw(b"{}")
# Legacy servers may ask only a host that they do not share: the only one there is, or one with a
# connection of its own. Modern servers ask inside a result, so they may always.
AskedBy = Literal["by all servers", "by its own servers", "by modern servers"]

ROOTS_CHANGED = "notifications/roots/list_changed"
GONE = "The suspended call is gone; it may have run"
LONGEST_STATE = 1 << 20  # bytes of a `requestState` that a host returns
LONGEST_SERVER_STATE = (
    LONGEST_STATE // 2
)  # bytes of a server's own, which takes a third more in ours
_BAD_STATE = "Invalid or expired requestState"
_NOT_DECLARED = {ELICIT: jsonrpc.INVALID_PARAMS}  # in a request; the code of other methods differs


class Elicitation:
    """One session as servers see it: what its host may be asked for, and how it is asked."""

    def __init__(
        self, session: HostSession, shared: InputRequests | None, suspended: Expiry
    ) -> None:
        self._session = session
        self._input_requests = shared
        self._suspended = suspended
        self.takes_turns = shared is not None  # one request, whose answers come with another
        self.leases: dict[ServerAddress, Any] = {}
        self.folder = ""  # of its host, where that is not ours
        self._capabilities: Members = {}
        self._told = OURS  # what servers are told that are connected now
        self.declared = NOTHING  # the same with the host's request, encoded
        self.shows_apps = self.loads_skills = False

    @property
    def input_requests(self) -> InputRequests:
        """What is open; created with the first question, which most hosts never get."""
        if self._input_requests is None:
            self._input_requests = InputRequests(suspended=self._suspended)
        return self._input_requests

    @property
    def key(self) -> Hashable:
        """Sessions that share their questions and declare the same are one host to a server."""
        return (id(self._input_requests), bytes(self.declared)) if self.takes_turns else id(self)

    @property
    def owner(self) -> Hashable:
        """Sessions that share their questions belong to one principal."""
        return id(self._input_requests) if self.takes_turns else id(self)

    @property
    def is_legacy(self) -> bool:
        return self._session.era.legacy

    # What the host may be asked for

    def declare(self, capabilities: msgspec.Raw | None) -> None:
        """Set the host's capabilities: of `initialize`, or of each modern request."""
        try:
            members = read_members(capabilities or b"{}")
        except msgspec.DecodeError:
            members = {}
        extensions = read_extensions(members)
        self.shows_apps = APPS in extensions
        self.loads_skills = self._session.era.modern and SKILLS in extensions
        shared = self._shared(extensions)
        if TASKS in extensions and self._session.era.modern:
            shared = {**(shared or {}), TASKS: extensions[TASKS]}
        questions = asking(members)
        announced = told(questions, extensions, shared)
        self.declared = msgspec.Raw(msgspec.json.encode(announced))
        if self._session.era.modern and not self.takes_turns:
            # A server is connected for all requests of this host: also for one that declares more than the last.
            questions = {**self._capabilities, **questions}
            announced = {**self._told, **announced}
        self._capabilities, self._told = questions, announced

    def _shared(self, extensions: Members) -> Members | None:
        """The extensions of the host's only server, if it has declared others than apps."""
        if len(extensions) == self.shows_apps:
            return None
        from mcp_workbench.gateway.server_extensions import offered_extensions  # seldom needed

        return offered_extensions(self._session.view)

    def asking_capabilities(self) -> Members:
        return self._capabilities

    def told_capabilities(self) -> Members:
        return self._told

    # Questions of legacy servers

    def ask(
        self, question: Question, caller: object, answered: AnswerCallback
    ) -> Callable[[], None]:
        """Put a question that came with the call `caller`, if any. Returns what withdraws it."""
        host_call = caller if isinstance(caller, HostCall) else None
        if host_call is not None and (withdraw := host_call.put(question, answered)) is not None:
            return withdraw
        if host_call is None:  # the server may be one that a request waits for
            host_call = self._session.under_way.waiting_for(question.address)
        if not self._session.era.modern:
            about = host_call.id if host_call is not None else b""
            if host_call is not None and host_call.related_task:
                from mcp_workbench.protocol.task_messages import about_task  # seldom needed

                params = about_task(question.params, host_call.related_task)
                question = msgspec.structs.replace(question, params=params)
            return self.input_requests.ask(self._session, question, about, answered)
        if host_call is None:
            self._answer_without_request(question, answered)
        elif not may_put(question, read_members(host_call.request.capabilities)):
            code = _NOT_DECLARED.get(question.method, jsonrpc.METHOD_NOT_FOUND)
            answered(
                b"",
                jsonrpc.error_object(code, "the host's request does not declare the capability"),
            )
        else:
            return self.input_requests.suspended_calls.suspend(host_call, question, answered)
        return lambda: None

    def _answer_without_request(self, question: Question, answered: AnswerCallback) -> None:
        """No request of a modern host is in flight that could be asked; its roots may be known."""
        roots = self.input_requests.suspended_calls.roots
        if question.method == ROOTS and roots is not None:
            answered(roots, b"")
            return
        why = "no request of the host is in flight that could carry the question"
        answered(b"", jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, why))

    def roots_changed(self, connections: Iterable[Connection]) -> None:
        """A legacy host has other roots: notify the servers that may ask for them."""
        for connection in connections:
            connection.server_requests.tell(self, connection.conversation, ROOTS_CHANGED)

    def answer(self, message: Envelope) -> None:
        """A response of a legacy host."""
        if self._input_requests is not None:
            self._input_requests.answer(message)

    # Questions of modern servers

    def input_required(self, host_call: HostCall, result: msgspec.Raw) -> None:
        if self._session.era.modern:
            self.input_requests.relay(host_call, result)
        else:
            self.input_requests.drive(host_call, result, lambda: self._session.start(host_call))

    def url_required(self, host_call: HostCall, error: msgspec.Raw) -> None:
        """A legacy server requires that URLs are visited before it is called again."""
        self.input_requests.require_urls(host_call, error)

    # A modern host that comes back with answers

    def take_answers(self, call: HostCall) -> bool:
        """Handle the answers that a call brings. Returns whether the call is to be sent now.

        It is not if it resumes a suspended call. Raises a RequestError for a bad state.
        """
        request = call.request
        if "requestState" not in request.params:
            return True
        state = self._state(request)
        if state is None or state.route != request.tool.address:
            raise RequestError(jsonrpc.INVALID_PARAMS, _BAD_STATE)
        if state.kind == "relay":
            params = {**request.params, "requestState": state.state}
            if state.handle:
                call.approval = self.input_requests.approvals.proceed(state.handle)
                if jsonrpc.is_null(state.state):  # the server has none
                    del params["requestState"]
            call.request = msgspec.structs.replace(request, params=params)
            return True
        if state.kind == "approve":
            return self._take_approval(call, state.handle)
        if state.kind == "held":
            self._resume(call, state.handle)
            return False
        return self._answer_handshake(call, state.handle)

    def _take_approval(self, call: HostCall, handle: str) -> bool:
        from mcp_workbench.server.call_approvals import take_answer  # only where it is configured

        answers = _answers(call.request)
        call.request = call.request.without_answers()
        return take_answer(call, handle, answers)

    def register(self, call: HostCall) -> bool:
        """Note a request that may have to wait for servers, which may ask something meanwhile.

        Returns False if answers to such questions are missing: then the host is asked again.
        """
        state = self._state(call.request) if "requestState" in call.request.params else None
        is_again = state is not None and state.kind == "again"
        if state is not None and is_again and not self._answer_handshake(call, state.handle):
            return False
        self._session.under_way[call.id] = call
        return True

    def _state(self, request: CallRequest) -> SignedState | None:
        try:
            raw = request.params["requestState"]
            token = msgspec.json.decode(raw, type=str) if len(raw) <= LONGEST_STATE else ""
        except msgspec.DecodeError:
            return None
        return self.input_requests.states.read(token, request)

    def _resume(self, call: HostCall, handle: str) -> None:
        suspended_calls = self.input_requests.suspended_calls
        suspension = suspended_calls.resume(handle)
        if suspension is None:
            raise RequestError(jsonrpc.INVALID_PARAMS, GONE)
        suspension.host_call.resume(self._session, call.id)
        if self._session.under_way.has(suspension.host_call):  # else its outcome was there already
            suspended_calls.answer(suspension, _answers(call.request))

    def _answer_handshake(self, call: HostCall, handle: str) -> bool:
        """Answer what a server asked before the call was sent; False if the host is asked again."""
        answers = _answers(call.request)
        if answers:
            from mcp_workbench.server.sign_in import visited  # rarely needed

            call.visit = visited(answers)
        call.request = call.request.without_answers()
        suspended_calls = self.input_requests.suspended_calls
        suspension = suspended_calls.resume(handle)
        if suspension is None:  # too late for the question, but the call was never sent
            return True
        suspension.host_call, call.suspension = call, suspension
        self._session.under_way[call.id] = call
        suspended_calls.answer(suspension, answers)
        if suspension.open:
            return False
        call.suspension = None
        return True

    def close(self) -> None:
        """The session has ended; what it shares with others stays open."""
        if self._input_requests is not None and not self.takes_turns:
            self._input_requests.close()


def _answers(request: CallRequest) -> Members:
    try:
        return read_members(request.params.get("inputResponses", b"{}"))
    except msgspec.DecodeError:
        return {}


class Sender(Protocol):
    """Sends our requests to a legacy host."""

    def put(self, frame: bytes, about: bytes) -> None: ...


class InputRequests:
    """The questions that are open, to legacy hosts and modern ones."""

    def __init__(
        self,
        principal: str = "anonymous",
        suspended: Expiry | None = None,
        states: Callable[[str], RequestStates] | None = None,
    ) -> None:
        # Loads hashing and random numbers.
        from mcp_workbench.server.suspended_calls import RequestStates, SuspendedCalls

        self.numbers = count(1)
        self._asked: dict[bytes, AnswerCallback] = {}
        self.states = RequestStates(principal) if states is None else states(principal)
        self.suspended_calls = SuspendedCalls(self.states, {} if suspended is None else suspended)
        self._approvals: SessionApprovals | None = None

    @property
    def approvals(self) -> SessionApprovals:
        """What its person has approved; created with the first question about that."""
        if self._approvals is None:
            from mcp_workbench.gateway.approvals import SessionApprovals

            self._approvals = SessionApprovals()
        return self._approvals

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer."""
        approved = self._approvals is None or self._approvals.is_idle
        return approved and not self._asked and self.suspended_calls.is_empty

    # To a legacy host: a request of our own

    def ask(
        self, sender: Sender, question: Question, about: bytes, answered: AnswerCallback
    ) -> Callable[[], None]:
        """Put the question. Returns what withdraws it."""
        id = b'"w%d"' % next(self.numbers)
        self._asked[id] = answered
        sender.put(jsonrpc.question(id, question.method, question.params), about)
        return partial(self._withdraw, sender, id, about)

    def answer(self, message: Envelope) -> None:
        """The host's response, if it is one to a question of ours."""
        answered = self._asked.pop(bytes(message.id), None)
        if answered is not None:
            answered(message.result, message.error)

    def _withdraw(self, sender: Sender, id: bytes, about: bytes) -> None:
        if self._asked.pop(id, None) is not None:
            params = b'{"requestId":%b,"reason":"withdrawn by the server"}' % id
            sender.put(jsonrpc.notification("notifications/cancelled", params), about)

    # From a modern server to a legacy host: we ask, and repeat the call with the answers

    def drive(self, host_call: HostCall, result: msgspec.Raw, repeat: Callable[[], None]) -> None:
        """Put every question of the result; when all are answered, `repeat` sends the call again."""
        required = self._read(host_call, result)
        if required is None:
            return
        if host_call.input_rounds is None:
            from mcp_workbench.gateway.interactive import InputRounds

            host_call.input_rounds = InputRounds(host_call, partial(self.put, host_call), repeat)
        host_call.input_rounds.next(required)

    def put(
        self, host_call: HostCall, question: Question, answered: AnswerCallback
    ) -> Callable[[], None]:
        """Put one question of a modern server to a legacy host. Returns what withdraws it."""
        from secrets import token_urlsafe  # loads hashing

        question = for_legacy_host(question, token_urlsafe(16))
        return self.ask(host_call.session, question, host_call.id, answered)

    # From a modern server to a modern host: the result passes, its state signed

    def relay(self, host_call: HostCall, result: msgspec.Raw) -> None:
        required = self._read(host_call, result)
        if required is None:
            return
        state = None
        if required.state is not None and len(required.state) > LONGEST_SERVER_STATE:
            long = f"its requestState is longer than {LONGEST_SERVER_STATE >> 10} KiB"
            host_call.give_up("protocol_error", f"the server's question can't be relayed: {long}")
            return
        approval = host_call.approval
        handle = "" if approval is None else self.approvals.interrupt(approval)
        if required.state is not None or handle:
            state = self.states.sign(
                host_call.request, "relay", handle=handle, state=required.state
            )
        host_call.finish(Completed(input_required(required.questions, state)))

    # From a legacy server to a modern host: an error that requires URLs to be visited

    def require_urls(self, host_call: HostCall, error: msgspec.Raw) -> None:
        """Ask in place of the error; the call has ended, and what the host sends then is a new one."""
        call = host_call.request
        try:
            questions = read_needed(call.tool.address, error)
        except msgspec.DecodeError as fault:
            why = f"the server wants addresses to be visited, but its error is malformed: {fault}"
            host_call.give_up("protocol_error", why)
            return
        declared = read_members(call.capabilities)
        if all(may_put(question, declared) for question in questions.values()):
            state = self.states.sign(call, "again")
            host_call.finish(Completed(input_required(questions, state)))
        else:
            needs: Any = {"requiredCapabilities": {"elicitation": {"url": {}}}}
            why = "the server wants an address to be visited first"
            refusal = jsonrpc.error_object(MISSING_CAPABILITY, why, needs)
            host_call.finish(Rejected(msgspec.Raw(refusal)))

    def _read(self, host_call: HostCall, result: msgspec.Raw) -> InputRequired | None:
        """The questions of a result; None if the host can't be asked them: then the call has failed."""
        from mcp_workbench.gateway.interactive import read_questions

        required = read_questions(host_call, result)
        declared = read_members(host_call.request.capabilities)
        for question in required.questions.values() if required is not None else ():
            if not may_put(question, declared):
                why = f"the server wants {question.method}, and this host can't be asked for that"
                host_call.give_up("protocol_error", why)
                return None
        return required

    def close(self) -> None:
        """The host is gone: nobody will answer."""
        self.suspended_calls.close()
        self._asked.clear()
