"""One host as servers see it: what it may be asked for, and how it is asked in its era."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.questions import ELICIT, ROOTS, Answered, Question, asking, may_put
from mcp_workbench.era.revision import CAPABILITIES_KEY
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.calls import HostCall
from mcp_workbench.surface.parse import RequestError
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope

if TYPE_CHECKING:
    from mcp_workbench.downstream.connection import Connection
    from mcp_workbench.era.seal import Sealed
    from mcp_workbench.surface.asking import Asking
    from mcp_workbench.surface.holding import Everyone
    from mcp_workbench.surface.session import HostSession

NOTHING = msgspec.Raw(b"{}")
# Legacy servers may ask only a host that they do not share: the only one there is, or one with a
# connection of its own. Modern servers ask inside a result, so they may always.
Asked = Literal["by all servers", "by its own servers", "by modern servers"]

ROOTS_CHANGED = "notifications/roots/list_changed"
_BAD_STATE = "Invalid or expired requestState"


class QuestionDesk:
    """Answers servers in the host's name, or finds out that nobody can."""

    def __init__(self, session: HostSession, shared: Asking | None, suspended: Everyone) -> None:
        self._session = session
        self._asking = shared
        self._suspended = suspended
        self.takes_turns = shared is not None  # one request, whose answers come with another
        self.leases: dict[ServerAddress, Any] = {}
        self._capabilities: Members = {}
        self.declared_once = NOTHING

    @property
    def asking(self) -> Asking:
        """What is open; loaded with the first question, which most hosts never get."""
        if self._asking is None:
            from mcp_workbench.surface.asking import Asking

            self._asking = Asking(suspended=self._suspended)
        return self._asking

    @property
    def key(self) -> Hashable:
        """Those who share their questions and declare the same are one to a server."""
        return (id(self._asking), bytes(self.declared_once)) if self.takes_turns else id(self)

    @property
    def owner(self) -> Hashable:
        """Those who share their questions are of one principal."""
        return id(self._asking) if self.takes_turns else id(self)

    # What it may be asked for

    def declare(self, capabilities: msgspec.Raw | None) -> None:
        """The host said what it can do: once at its opening, or with each request."""
        try:
            self._capabilities = asking(read_members(capabilities or b"{}"))
        except msgspec.DecodeError:
            self._capabilities = {}
        self.declared_once = msgspec.Raw(msgspec.json.encode(self._capabilities))

    def declared(self, meta: Members) -> msgspec.Raw:
        """What a call of this host declares to a modern server."""
        if self._session.era.modern:
            self.declare(meta.get(CAPABILITIES_KEY))
        return self.declared_once

    def asking_capabilities(self) -> Members:
        return self._capabilities

    # Questions of legacy servers

    def ask(self, question: Question, caller: object, answered: Answered) -> Callable[[], None]:
        host_call = caller if isinstance(caller, HostCall) else None
        if host_call is None:  # it may come of a server that a request is waiting for
            host_call = self._session.under_way.waiting_for(question.address)
        if not self._session.era.modern:
            about = host_call.id if host_call is not None else b""
            return self.asking.ask(self._session, question, about, answered)
        if host_call is None:
            self._answer_alone(question, answered)
        elif not may_put(question, read_members(host_call.request.capabilities)):
            code = _NOT_THIS_TIME.get(question.method, envelope.METHOD_NOT_FOUND)
            answered(b"", envelope.error_object(code, "this request of the host can't be asked"))
        else:
            return self.asking.holding.hold(host_call, question, answered)
        return lambda: None

    def _answer_alone(self, question: Question, answered: Answered) -> None:
        """Nothing of a modern host is there to carry the question; its roots we may know."""
        roots = self.asking.holding.roots
        if question.method == ROOTS and roots is not None:
            answered(roots, b"")
            return
        why = "there is no request of the host that the question could be put to"
        answered(b"", envelope.error_object(envelope.METHOD_NOT_FOUND, why))

    def roots_changed(self, connections: Iterable[Connection]) -> None:
        """A legacy host has other roots: servers that may ask for them are told."""
        for connection in connections:
            connection.questions.tell(self, connection.conversation, ROOTS_CHANGED)

    def answer(self, message: Envelope) -> None:
        """An answer of a legacy host."""
        if self._asking is not None:
            self._asking.answer(message)

    # Questions of modern servers

    def questioned(self, host_call: HostCall, result: msgspec.Raw) -> None:
        if self._session.era.modern:
            self.asking.relay(host_call, result)
        else:
            self.asking.drive(host_call, result, lambda: self._session.start(host_call))

    def needs_addresses(self, host_call: HostCall, error: msgspec.Raw) -> None:
        """A legacy server wants a person to visit addresses, and then to be called again."""
        self.asking.send_to_addresses(host_call, error)

    # A modern host that comes back with answers

    def returned(self, call: HostCall) -> bool:
        """Is the call to be sent now? No where a held one goes on. Raises a RequestError for a bad state."""
        request = call.request
        if "requestState" not in request.params:
            return True
        state = self._state(request)
        if state is None or state.route != request.tool.address:
            raise RequestError(envelope.INVALID_PARAMS, _BAD_STATE)
        if state.kind == "relay":
            params = {**request.params, "requestState": state.state}
            call.request = msgspec.structs.replace(request, params=params)
            return True
        if state.kind == "held":
            self._resume(call, state.handle)
            return False
        return self._answer_first(call, state.handle)

    def opening(self, call: HostCall) -> bool:
        """Note a request that may have to wait for servers, which may ask something meanwhile.

        False where answers to such questions are missing, which are asked for again.
        """
        state = self._state(call.request) if "requestState" in call.request.params else None
        is_again = state is not None and state.kind == "again"
        if state is not None and is_again and not self._answer_first(call, state.handle):
            return False
        self._session.under_way[call.id] = call
        return True

    def _state(self, request: CallRequest) -> Sealed | None:
        try:
            token = msgspec.json.decode(request.params["requestState"], type=str)
        except msgspec.DecodeError:
            return None
        return self.asking.open_state(token, request)

    def _resume(self, call: HostCall, handle: str) -> None:
        from mcp_workbench.surface.asking import GONE

        held = self.asking.holding.resume(handle)
        if held is None:
            raise RequestError(envelope.INVALID_PARAMS, GONE)
        held.host_call.resume(self._session, call.id)
        if self._session.under_way.has(held.host_call):  # else its answer was there already
            self.asking.holding.answer(held, _answers(call.request))

    def _answer_first(self, call: HostCall, handle: str) -> bool:
        """Answer what was asked before the request began; False where some of it is asked again."""
        answers = _answers(call.request)
        call.request = call.request.without_answers()
        held = self.asking.holding.resume(handle)
        if held is None:  # too late for the question, but the request never began
            return True
        held.host_call, call.held = call, held
        self._session.under_way[call.id] = call
        self.asking.holding.answer(held, answers)
        if held.open:
            return False
        call.held = None
        return True

    def close(self) -> None:
        """The session is over; what is shared with others goes on."""
        if self._asking is not None and not self.takes_turns:
            self._asking.close()


_NOT_THIS_TIME = {ELICIT: envelope.INVALID_PARAMS}


def _answers(request: CallRequest) -> Members:
    try:
        return read_members(request.params.get("inputResponses", b"{}"))
    except msgspec.DecodeError:
        return {}
