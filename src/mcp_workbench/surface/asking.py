"""What servers ask hosts, and the way of the answers back, for every pair of eras."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Protocol

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.era.questions import (
    ROUNDS,
    Answered,
    InputRequired,
    Question,
    input_required,
    may_ask,
    read_input_required,
    unanswered,
)
from mcp_workbench.era.seal import LIFETIME, Seal, Sealed, digest_of
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.host_call import HostCall
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope

SIBLINGS = 0.02  # seconds in which further questions of the same call join the first
MOST_HELD = 64  # calls that wait for a person; beyond it the oldest is given up
GONE = "The suspended call is gone; it may have run"


class Sender(Protocol):
    """Where questions to a legacy host leave."""

    def put(self, frame: bytes, about: bytes) -> None: ...


class Held:
    """A call of a modern host that waits at its legacy server while the host is asked."""

    def __init__(self, host_call: HostCall) -> None:
        self.host_call = host_call
        self.open: dict[str, tuple[Question, Answered]] = {}
        self.rounds = 0
        self.keys = count(1)
        self.timer: asyncio.TimerHandle | None = None


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
            self._host_call.refused(msgspec.Raw(bytes(error)))
            return
        self._answers[key] = msgspec.Raw(bytes(told))
        self.perhaps_repeat()

    def perhaps_repeat(self) -> None:
        """Call again once every question has its answer."""
        if len(self._answers) < len(self._wanted.questions):
            return
        self._host_call.withdrawals.clear()
        more = {"inputResponses": msgspec.Raw(msgspec.json.encode(self._answers))}
        if self._wanted.state is not None:
            more["requestState"] = self._wanted.state
        call = self._host_call.call
        self._host_call.call = msgspec.structs.replace(call, params={**call.params, **more})
        self._again()


class Asking:
    """The questions that are open, towards legacy hosts and modern ones."""

    def __init__(self, principal: str = "anonymous") -> None:
        self._principal = principal
        self._seal = Seal(secrets.token_bytes(32))
        self._numbers = count(1)
        self._asked: dict[bytes, Answered] = {}
        self._held: dict[str, Held] = {}
        self._holding: dict[HostCall, Held] = {}

    # A legacy host is asked by a request of its own

    def ask(
        self, sender: Sender, question: Question, about: bytes, answered: Answered
    ) -> Callable[[], None]:
        """Put the question; what is returned withdraws it."""
        id = b'"w%d"' % next(self._numbers)
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
            host_call.withdrawals.append(self.ask(host_call.sender, question, host_call.id, done))
        turn.perhaps_repeat()

    # A modern server's questions to a modern host pass on, their state sealed

    def relay(self, host_call: HostCall, result: msgspec.Raw) -> None:
        wanted = self._read(host_call, result)
        if wanted is None:
            return
        state = None
        if wanted.state is not None:
            state = self._sealed(host_call.call, "relay", state=wanted.state)
        host_call.answered(input_required(wanted.questions, state))

    # A legacy server's questions to a modern host: the call is held while the host is asked

    def hold(
        self, host_call: HostCall, question: Question, answered: Answered
    ) -> Callable[[], None]:
        """Put the question in place of the call's answer; the call goes on waiting at its server."""
        held = self._holding.get(host_call)
        if held is None:
            held = self._holding[host_call] = Held(host_call)
            asyncio.get_running_loop().call_later(SIBLINGS, self._suspend, held)
        key = f"q{next(held.keys)}"
        held.open[key] = (question, answered)
        return lambda: held.open.pop(key, None) and None

    def _suspend(self, held: Held) -> None:
        self._holding.pop(held.host_call, None)
        if not held.open or not held.host_call.suspend():
            return  # withdrawn meanwhile, or the host has gone
        if len(self._held) >= MOST_HELD:
            self._expire(next(iter(self._held)))
        handle = secrets.token_urlsafe(16)
        held.rounds += 1
        self._held[handle] = held
        held.timer = asyncio.get_running_loop().call_later(LIFETIME, self._expire, handle)
        questions = {key: question for key, (question, _) in held.open.items()}
        state = self._sealed(held.host_call.call, "held", handle=handle)
        held.host_call.reply_questions(input_required(questions, state))

    def resume(self, handle: str) -> Held | None:
        """Take a held call out, once."""
        held = self._held.pop(handle, None)
        if held is not None and held.timer is not None:
            held.timer.cancel()
        return held

    def abandon(self, host_call: HostCall) -> None:
        """Give up a held call whose place is wanted."""
        for handle in [h for h, held in self._held.items() if held.host_call is host_call]:
            self._expire(handle)

    def answer_held(self, held: Held, answers: Members) -> None:
        """Hand the host's answers to the server; what is missing is asked for again."""
        given = {key: held.open.pop(key) for key in list(held.open) if key in answers}
        for key, (_, answered) in given.items():
            answered(answers[key], b"")
        if held.open and held.rounds < ROUNDS:
            self._holding[held.host_call] = held
            asyncio.get_running_loop().call_later(SIBLINGS, self._suspend, held)
        elif held.open:
            self._decline(held)

    def _expire(self, handle: str) -> None:
        held = self.resume(handle)
        if held is not None:
            self._decline(held)
            held.host_call.cancel("nobody answered the server's question in time")

    def _decline(self, held: Held) -> None:
        error = envelope.error_object(envelope.INTERNAL_ERROR, "nobody answered in time")
        for question, answered in held.open.values():
            told = unanswered(question.method)
            answered(told or b"", b"" if told else error)
        held.open.clear()

    # Seals

    def open_state(self, token: str, call: ToolCall) -> Sealed | None:
        return self._seal.open(token, self._principal, _digest(call), time.time())

    def _sealed(
        self, call: ToolCall, kind: str, *, handle: str = "", state: msgspec.Raw | None = None
    ) -> str:
        sealed = Sealed(
            kind="held" if kind == "held" else "relay",
            route=call.tool.address,
            digest=_digest(call),
            principal=self._principal,
            born=time.time(),
            handle=handle,
            state=state if state is not None else msgspec.Raw(b"null"),
        )
        return self._seal.close(sealed)

    def _read(self, host_call: HostCall, result: msgspec.Raw) -> InputRequired | None:
        """The questions in it; None where they can't be put, which the host has then been told."""
        try:
            wanted = read_input_required(host_call.call.tool.address, result)
        except msgspec.DecodeError as error:
            host_call.give_up("protocol_error", f"the server's question can't be read: {error}")
            return None
        declared = read_members(host_call.call.capabilities)
        for question in wanted.questions.values():
            if not may_ask(question.method, declared):
                why = f"the server wants {question.method}, and this host can't be asked for that"
                host_call.give_up("protocol_error", why)
                return None
        return wanted

    def close(self) -> None:
        """The host is gone: nobody will answer."""
        for handle in list(self._held):
            self._expire(handle)
        self._asked.clear()


def _digest(call: ToolCall) -> str:
    return digest_of(str(call.tool), call.params["arguments"])
