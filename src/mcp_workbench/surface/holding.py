"""Requests of modern hosts that wait while their host is asked something by a legacy server."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Literal

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.era.questions import (
    ROOTS,
    ROUNDS,
    Answered,
    Question,
    input_required,
    unanswered,
)
from mcp_workbench.era.seal import LIFETIME
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.surface.calls import HostCall
from mcp_workbench.wire import envelope

log = logging.getLogger(__name__)

SIBLINGS = 0.02  # seconds in which further questions of the same call join the first
# Requests that wait for a person; beyond that the oldest is given up. One principal that never
# answers takes an eighth of what there is for all.
MOST_HELD = 64
MOST_OF_ONE = 8
LATE = "nobody answered the server's question in time"
FULL = "too many questions are open, and the oldest has to give way"

Waits = Literal["held", "again"]  # at its server, or for its server: then it is sent anew
Sealing = Callable[[CallRequest, Waits, str], str]
Everyone = dict[str, Callable[[str], None]]  # by handle, oldest first: gives up one that waits


class Held:
    """The questions that are open for one request, over all its rounds."""

    def __init__(self, host_call: HostCall) -> None:
        self.host_call = host_call
        self.open: dict[str, tuple[Question, Answered]] = {}
        self.rounds = 0
        self.gathering = False  # the host is about to be asked
        self.expire: Callable[[], None] = lambda: None  # gives up a host that does not come back
        self.timer: asyncio.TimerHandle | None = None
        self._keys = count(1)

    @property
    def waits(self) -> Waits:
        return "again" if self.host_call.connection is None else "held"

    def add(self, question: Question, answered: Answered) -> Callable[[], None]:
        """Another question; what is returned takes it back."""
        key = f"q{next(self._keys)}"
        self.open[key] = (question, answered)
        return lambda: self.open.pop(key, None) and None

    def decline(self) -> None:
        """Nobody will answer."""
        error = envelope.error_object(envelope.INTERNAL_ERROR, "nobody answered in time")
        opened, self.open = self.open, {}
        for question, answered in opened.values():
            told = unanswered(question.method)
            answered(told or b"", b"" if told else error)


class Holding:
    """What is open towards the modern hosts of one principal, among those of all."""

    def __init__(self, seal: Sealing, everyone: Everyone) -> None:
        self.roots: msgspec.Raw | None = None  # as a host told them last
        self._seal = seal
        self._held: dict[str, Held] = {}  # by the handle that its host was given
        self._everyone = everyone

    def hold(
        self, host_call: HostCall, question: Question, answered: Answered
    ) -> Callable[[], None]:
        """Put the question in place of the request's answer.

        A call that is at its server goes on waiting there. One whose server is still being met does
        not begin: the host sends it anew with the answers, and the server has these first.
        """
        held = host_call.held
        if held is None:
            held = host_call.held = Held(host_call)
            if held.waits == "again":
                host_call.stop()
        withdraw = held.add(question, answered)
        if not held.host_call.suspended:  # else it is asked when the host comes back
            self.gather(held)
        return withdraw

    def gather(self, held: Held) -> None:
        """Ask the host soon: what a server wants to know often comes in several questions."""
        if not held.gathering:
            held.gathering = True
            asyncio.get_running_loop().call_later(SIBLINGS, self._ask, held)

    def _ask(self, held: Held) -> None:
        held.gathering = False
        host_call, waits = held.host_call, held.waits
        if waits == "held" and not held.open:
            return  # withdrawn meanwhile: the call goes on
        if held.rounds >= ROUNDS:
            held.decline()
            host_call.abandon("too many questions")
            host_call.give_up("protocol_error", "the server never stops asking")
        elif host_call.suspend():
            self._reply(held, waits)
        else:
            held.decline()  # it was answered, or taken back

    def _reply(self, held: Held, waits: Waits) -> None:
        if len(self._held) >= MOST_OF_ONE:
            self._expire(next(iter(self._held)), FULL)
        elif len(self._everyone) >= MOST_HELD:
            next(iter(self._everyone.values()))(FULL)
        handle = secrets.token_urlsafe(16)
        held.rounds += 1
        self._held[handle] = held
        self._everyone[handle] = partial(self._expire, handle)
        held.expire = partial(self._expire, handle, LATE)
        held.timer = asyncio.get_running_loop().call_later(LIFETIME, held.expire)
        questions = {key: question for key, (question, _) in held.open.items()}
        state = self._seal(held.host_call.request, waits, handle)
        held.host_call.reply_questions(input_required(questions, state))

    # The host is back

    def resume(self, handle: str) -> Held | None:
        """Take out what waits for its host, once."""
        held = self._held.pop(handle, None)
        self._everyone.pop(handle, None)
        if held is not None and held.timer is not None:
            held.timer.cancel()
        return held

    def answer(self, held: Held, answers: Members) -> None:
        """Hand the host's answers to the server; what is missing is asked for again."""
        given = {key: held.open.pop(key) for key in list(held.open) if key in answers}
        for key, (question, answered) in given.items():
            if question.method == ROOTS:
                self._remember(answers[key])
            answered(answers[key], b"")
        if held.open:
            self.gather(held)

    def _remember(self, roots: msgspec.Raw) -> None:
        try:
            if "roots" in read_members(roots):
                self.roots = roots
        except msgspec.DecodeError:
            return

    # It never comes

    def _expire(self, handle: str, why: str) -> None:
        held = self.resume(handle)
        if held is not None:
            log.warning("%s: given up: %s", held.host_call.request.tool, why)
            held.decline()
            held.host_call.cancel(why)

    def close(self) -> None:
        """The host is gone: nobody will answer."""
        for handle in list(self._held):
            self._expire(handle, "the host is gone")
