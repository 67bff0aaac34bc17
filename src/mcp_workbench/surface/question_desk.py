"""One host as servers see it: what it may be asked for, and how it is asked in its era."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.era.questions import ELICIT, ROOTS, Answered, Question, asking, may_put
from mcp_workbench.era.revision import CAPABILITIES_KEY
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.host_call import Desk, HostCall, Opening
from mcp_workbench.surface.reading import HostEra, Refusal
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope

if TYPE_CHECKING:
    from mcp_workbench.downstream.connection import Connection
    from mcp_workbench.era.seal import Sealed
    from mcp_workbench.surface.asking import Asking

NOTHING = msgspec.Raw(b"{}")
# What belongs to a question that a server has asked, and not to the request itself.
ANSWERS = ("inputResponses", "requestState")
# Legacy servers may ask only a host that they do not share: the only one there is, or one with a
# connection of its own. Modern servers ask inside a result, so they may always.
Asked = Literal["by all servers", "by its own servers", "by modern servers"]

ROOTS_CHANGED = "notifications/roots/list_changed"
_BAD_STATE = "Invalid or expired requestState"


class Session(Desk, Protocol):
    """What the desk needs of the session that it belongs to."""

    @property
    def era(self) -> HostEra: ...
    def use(self, host_call: HostCall) -> None: ...


class QuestionDesk:
    """Answers servers in the host's name, or finds out that nobody can."""

    def __init__(
        self, session: Session, shared: Asking | None, beside: dict[str, Any] | None = None
    ) -> None:
        self._session = session
        self._asking = shared
        self._beside = beside
        self.takes_turns = shared is not None  # one request, whose answers come with another
        self.leases: dict[ServerAddress, Any] = {}
        self._capabilities: Members = {}
        self.declared_once = NOTHING

    @property
    def asking(self) -> Asking:
        """What is open; loaded with the first question, which most hosts never get."""
        if self._asking is None:
            from mcp_workbench.surface.asking import Asking

            self._asking = Asking(beside=self._beside)
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
            return self.asking.ask(self._session.sender, question, about, answered)
        if host_call is None:
            self._answer_alone(question, answered)
        elif not may_put(question, read_members(host_call.call.capabilities)):
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
            self.asking.drive(host_call, result, lambda: self._again(host_call))

    def needs_addresses(self, host_call: HostCall, error: msgspec.Raw) -> None:
        """A legacy server wants a person to visit addresses, and then to be called again."""
        self.asking.send_to_addresses(host_call, error)

    def _again(self, host_call: HostCall) -> None:
        if not host_call.repeat():
            self._session.use(host_call)

    # A modern host that comes back with answers

    def returned(self, id: bytes, call: ToolCall) -> ToolCall | None:
        """The call to make now; None where a held one goes on. Raises a Refusal for a bad state."""
        if "requestState" not in call.params:
            return call
        state = self._state(call)
        if state is None or state.route != call.tool.address:
            raise Refusal(envelope.INVALID_PARAMS, _BAD_STATE)
        if state.kind == "relay":
            params = {**call.params, "requestState": state.state}
            return msgspec.structs.replace(call, params=params)
        if state.kind == "held":
            self._resume(id, state.handle, call)
            return None
        return _first(call) if self._answer_first(id, state.handle, call) else None

    def opening(
        self, id: bytes, asked: ToolIdentifier, members: Members, meta: Members
    ) -> Members | None:
        """Note a request that may have to wait for servers, which may ask something meanwhile.

        What it says beside answers to such questions; None where one of these is missing.
        """
        modern = self._session.era.modern
        call = as_call(asked, members, meta, self.declared(meta), modern=modern)
        state = self._state(call) if "requestState" in members else None
        if state is not None and state.kind == "again":
            if not self._answer_first(id, state.handle, call):
                return None
            members = {key: value for key, value in members.items() if key not in ANSWERS}
        self._session.under_way[id] = Opening(self._session, id, _first(call), flat=False)
        return members

    def _state(self, call: ToolCall) -> Sealed | None:
        try:
            token = msgspec.json.decode(call.params["requestState"], type=str)
        except msgspec.DecodeError:
            return None
        return self.asking.open_state(token, _first(call))

    def _resume(self, id: bytes, handle: str, call: ToolCall) -> None:
        from mcp_workbench.surface.asking import GONE

        held = self.asking.holding.resume(handle)
        if held is None:
            raise Refusal(envelope.INVALID_PARAMS, GONE)
        held.host_call.resume(self._session, id)
        if self._session.under_way.has(held.host_call):  # else its answer was there already
            self.asking.holding.answer(held, _answers(call))

    def _answer_first(self, id: bytes, handle: str, call: ToolCall) -> bool:
        """Answer what was asked before the request began; False where some of it is asked again."""
        held = self.asking.holding.resume(handle)
        if held is None:  # too late for the question, but the request never began
            return True
        held.host_call = HostCall(self._session, id, _first(call), flat=False)
        held.host_call.held = held
        self._session.under_way[id] = held.host_call
        self.asking.holding.answer(held, _answers(call))
        return not held.open

    def close(self) -> None:
        """The session is over; what is shared with others goes on."""
        if self._asking is not None and not self.takes_turns:
            self._asking.close()


_NOT_THIS_TIME = {ELICIT: envelope.INVALID_PARAMS}


def as_call(
    asked: ToolIdentifier, members: Members, meta: Members, declared: msgspec.Raw, *, modern: bool
) -> ToolCall:
    """The form that calls have: what is asked for stands in the place of arguments."""
    params = {key: members[key] for key in ANSWERS if key in members}
    said = {key: value for key, value in members.items() if key not in ANSWERS}
    params["arguments"] = msgspec.Raw(msgspec.json.encode(said))
    return ToolCall(asked, params, meta, modern, declared)


def _first(call: ToolCall) -> ToolCall:
    """The call as it was before any question: what its state is bound to."""
    return msgspec.structs.replace(call, params={"arguments": call.params["arguments"]})


def _answers(call: ToolCall) -> Members:
    try:
        return read_members(call.params.get("inputResponses", b"{}"))
    except msgspec.DecodeError:
        return {}
