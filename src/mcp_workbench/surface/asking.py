"""What servers ask hosts, and the way of the answers back, for every pair of eras."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Protocol

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.era.questions import (
    ROUNDS,
    Answered,
    InputRequired,
    Question,
    for_legacy_host,
    input_required,
    may_put,
    read_input_required,
    read_needed,
    unanswered,
)
from mcp_workbench.era.revision import MISSING_CAPABILITY
from mcp_workbench.era.seal import Kind, Seal, Sealed, digest_of
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.gateway.interceptors import Completed, Rejected
from mcp_workbench.surface.calls import HostCall
from mcp_workbench.surface.holding import Everyone, Holding
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope

PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds before a server is called again that asked nothing
GONE = "The suspended call is gone; it may have run"


class Sender(Protocol):
    """Where questions to a legacy host leave."""

    def put(self, frame: bytes, about: bytes) -> None: ...


class Turn:
    """The questions of one result of a modern server, put to a legacy host one by one."""

    def __init__(
        self, host_call: HostCall, wanted: InputRequired, again: Callable[[], None]
    ) -> None:
        self._host_call = host_call
        self._wanted = wanted
        self._again = again
        self._answers: Members = {}

    def answered(self, key: str, result: msgspec.Raw | bytes, error: msgspec.Raw | bytes) -> None:
        told = result or unanswered(self._wanted.questions[key].method)
        if told is None:
            self._host_call.withdraw()
            self._host_call.finish(Rejected(msgspec.Raw(bytes(error))))
            return
        self._answers[key] = msgspec.Raw(bytes(told))
        self.perhaps_repeat()

    def perhaps_repeat(self) -> None:
        """Call again once every question has its answer."""
        if len(self._answers) < len(self._wanted.questions):
            return
        self._host_call.withdrawals = ()
        more = {"inputResponses": msgspec.Raw(msgspec.json.encode(self._answers))}
        if self._wanted.state is not None:
            more["requestState"] = self._wanted.state
        request = self._host_call.request
        params = {**request.params, **more}
        self._host_call.request = msgspec.structs.replace(request, params=params)
        self._again()


class Asking:
    """The questions that are open, towards legacy hosts and modern ones."""

    def __init__(self, principal: str = "anonymous", suspended: Everyone | None = None) -> None:
        self._principal = principal
        self._seal = Seal(secrets.token_bytes(32))
        self.numbers = count(1)
        self._asked: dict[bytes, Answered] = {}
        self.holding = Holding(self._seal_waiting, {} if suspended is None else suspended)

    # A legacy host is asked by a request of its own

    def ask(
        self, sender: Sender, question: Question, about: bytes, answered: Answered
    ) -> Callable[[], None]:
        """Put the question; what is returned withdraws it."""
        id = b'"w%d"' % next(self.numbers)
        self._asked[id] = answered
        sender.put(envelope.question(id, question.method, question.params), about)
        return partial(self._withdraw, sender, id, about)

    def answer(self, message: Envelope) -> None:
        """The host's answer to a question of ours, if it is one."""
        answered = self._asked.pop(bytes(message.id), None)
        if answered is not None:
            answered(message.result, message.error)

    def _withdraw(self, sender: Sender, id: bytes, about: bytes) -> None:
        if self._asked.pop(id, None) is not None:
            params = b'{"requestId":%b,"reason":"withdrawn by the server"}' % id
            sender.put(envelope.notification("notifications/cancelled", params), about)

    # A modern server's questions to a legacy host: we ask, and call again with the answers

    def drive(self, host_call: HostCall, result: msgspec.Raw, again: Callable[[], None]) -> None:
        """Put every question of the result; when all are answered, `again` repeats the call."""
        wanted = self._read(host_call, result)
        if wanted is None:
            return
        host_call.rounds += 1
        if host_call.rounds > ROUNDS:
            host_call.give_up("protocol_error", "the server never stops asking")
            return
        turn = Turn(host_call, wanted, again)
        for key, question in wanted.questions.items():
            done = partial(turn.answered, key)
            put = for_legacy_host(question, secrets.token_urlsafe(16))
            withdraw = self.ask(host_call.session, put, host_call.id, done)
            host_call.withdrawals += (withdraw,)
        if not wanted.questions and host_call.rounds > 1:  # it wants to be asked once more, later
            pause = min(PAUSE * 2 ** (host_call.rounds - 2), LONGEST_PAUSE)
            timer = asyncio.get_running_loop().call_later(pause, turn.perhaps_repeat)
            host_call.withdrawals += (timer.cancel,)
        else:
            turn.perhaps_repeat()

    # A modern server's questions to a modern host pass on, their state sealed

    def relay(self, host_call: HostCall, result: msgspec.Raw) -> None:
        wanted = self._read(host_call, result)
        if wanted is None:
            return
        state = None
        if wanted.state is not None:
            state = self._sealed(host_call.request, "relay", state=wanted.state)
        host_call.finish(Completed(input_required(wanted.questions, state)))

    # A legacy server's error that sends a modern host's person to addresses first

    def send_to_addresses(self, host_call: HostCall, error: msgspec.Raw) -> None:
        """Ask in place of the error; the call is over, and what the host sends then is a new one."""
        call = host_call.request
        try:
            questions = read_needed(call.tool.address, error)
        except msgspec.DecodeError as fault:
            why = f"the server wants addresses to be visited, and names none: {fault}"
            host_call.give_up("protocol_error", why)
            return
        declared = read_members(call.capabilities)
        if all(may_put(question, declared) for question in questions.values()):
            state = self._sealed(call, "again")
            host_call.finish(Completed(input_required(questions, state)))
        else:
            needs: Any = {"requiredCapabilities": {"elicitation": {"url": {}}}}
            why = "the server wants an address to be visited first"
            told = envelope.error_object(MISSING_CAPABILITY, why, needs)
            host_call.finish(Rejected(msgspec.Raw(told)))

    # Seals. Their key is this process's own, so that none outlives it: its clock is the one to trust,
    # and not the time of day, which people and networks set.

    def open_state(self, token: str, call: CallRequest) -> Sealed | None:
        return self._seal.open(token, self._principal, _digest(call), time.monotonic())

    def _seal_waiting(self, call: CallRequest, kind: Kind, handle: str) -> str:
        return self._sealed(call, kind, handle=handle)

    def _sealed(
        self, call: CallRequest, kind: Kind, *, handle: str = "", state: msgspec.Raw | None = None
    ) -> str:
        sealed = Sealed(
            kind=kind,
            route=call.tool.address,
            digest=_digest(call),
            principal=self._principal,
            born=time.monotonic(),
            handle=handle,
            state=state if state is not None else msgspec.Raw(b"null"),
        )
        return self._seal.close(sealed)

    def _read(self, host_call: HostCall, result: msgspec.Raw) -> InputRequired | None:
        """The questions in it; None where they can't be put, which the host has then been told."""
        try:
            wanted = read_input_required(host_call.request.tool.address, result)
        except msgspec.DecodeError as error:
            host_call.give_up("protocol_error", f"the server's question can't be read: {error}")
            return None
        declared = read_members(host_call.request.capabilities)
        for question in wanted.questions.values():
            if not may_put(question, declared):
                why = f"the server wants {question.method}, and this host can't be asked for that"
                host_call.give_up("protocol_error", why)
                return None
        return wanted

    def close(self) -> None:
        """The host is gone: nobody will answer."""
        self.holding.close()
        self._asked.clear()


def _digest(call: CallRequest) -> str:
    return digest_of(str(call.tool), call.body)
