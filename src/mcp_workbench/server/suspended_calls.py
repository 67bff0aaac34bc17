"""Calls of modern hosts that are suspended while a legacy server asks their host something.

The host's request is answered with `input_required`, whose `requestState` is a signed token; the host comes back
with a new request that has the answers and the token. A call that was sent waits at its server meanwhile
("held"). One whose server is still in its handshake is not sent; the host's next request starts it ("again").
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Literal

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.protocol.elicitation import (
    ROOTS,
    ROUNDS,
    AnswerCallback,
    Question,
    input_required,
    unanswered,
)
from mcp_workbench.protocol.signed_state import LIFETIME, Kind, Seal, SignedState, digest_of
from mcp_workbench.server.host_calls import HostCall
from mcp_workbench.transport import jsonrpc

log = logging.getLogger(__name__)

GATHER = 0.02  # seconds in which further questions of the same call join the first
# Suspended calls; beyond that the oldest is given up. One principal that never answers takes an
# eighth of what there is for all.
MOST_SUSPENDED = 64
MOST_PER_PRINCIPAL = 8
SKEW = 10.0  # seconds by which the clocks of replicas may differ
LATE = "nobody answered the server's question in time"
FULL = "too many questions are open; the oldest call was given up"

SuspensionKind = Literal["held", "again"]  # it was sent and waits, or will be sent again
Expiry = dict[
    str, Callable[[str], None]
]  # gives up a call; by handle, of all principals, oldest first


class RequestStates:
    """Signs and reads the `requestState` tokens of one principal.

    The key is this process's own, so that no token outlives it. Their age is measured by the monotonic
    clock, because the time of day can be set. Replicas share a key and the time of day, and a handle
    begins with the name of the replica that holds the call.
    """

    def __init__(
        self,
        principal: str,
        key: bytes = b"",
        clock: Callable[[], float] = time.monotonic,
        replica: str = "",
    ) -> None:
        self._skew = SKEW if replica else 0.0
        self._principal = principal
        self._seal = Seal(key or secrets.token_bytes(32))
        self._clock = clock
        self._replica = replica

    def new_handle(self) -> str:
        return self._replica + secrets.token_urlsafe(16)

    def read(self, token: str, request: CallRequest) -> SignedState | None:
        """The content of a token that belongs to this request; None if it is not valid."""
        if self._seal.verified(token) is None:  # before the digest, which reads all arguments
            return None
        return self._seal.open(token, self._principal, _digest(request), self._clock())

    def sign(
        self,
        request: CallRequest,
        kind: Kind,
        *,
        handle: str = "",
        state: msgspec.Raw | None = None,
    ) -> str:
        sealed = SignedState(
            kind=kind,
            route=request.tool.address,
            digest=_digest(request),
            principal=self._principal,
            born=self._clock() - self._skew,
            handle=handle,
            state=state if state is not None else msgspec.Raw(b"null"),
        )
        return self._seal.close(sealed)


def _digest(request: CallRequest) -> str:
    return digest_of(str(request.tool), request.body)


class Suspension:
    """The open questions of one call, over all its rounds."""

    def __init__(self, host_call: HostCall) -> None:
        self.host_call = host_call
        self.open: dict[str, tuple[Question, AnswerCallback]] = {}
        self.rounds = 0
        self.gathering = False  # until the host is asked
        self.expire: Callable[[], None] = lambda: None  # gives up the call
        self.timer: asyncio.TimerHandle | None = None
        self._keys = count(1)

    @property
    def kind(self) -> SuspensionKind:
        return "held" if self.host_call.is_held else "again"

    def add(self, question: Question, answered: AnswerCallback) -> Callable[[], None]:
        """Add a question. Returns what withdraws it."""
        key = f"q{next(self._keys)}"
        self.open[key] = (question, answered)
        return lambda: self.open.pop(key, None) and None

    def decline(self) -> None:
        """Decline all open questions: nobody will answer."""
        error = jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, "nobody answered in time")
        opened, self.open = self.open, {}
        for question, answered in opened.values():
            answer = unanswered(question.method)
            answered(answer or b"", b"" if answer else error)


class SuspendedCalls:
    """The suspended calls of one principal."""

    def __init__(self, states: RequestStates, expiry: Expiry) -> None:
        self.roots: msgspec.Raw | None = None  # as a host sent them last
        self._states = states
        self._suspensions: dict[str, Suspension] = {}  # by the handle in the host's token
        self._expiry = expiry

    @property
    def is_empty(self) -> bool:
        return not self._suspensions

    def suspend(
        self, host_call: HostCall, question: Question, answered: AnswerCallback
    ) -> Callable[[], None]:
        """Answer the host's request with the question. Returns what withdraws it.

        A call that was sent goes on waiting at its server. One whose server is still in its handshake is
        not sent: the host's next request has the answers, and the server gets these first.
        """
        suspension = host_call.suspension
        if suspension is None:
            suspension = host_call.suspension = Suspension(host_call)
            if suspension.kind == "again":
                host_call.stop()
        withdraw = suspension.add(question, answered)
        if not suspension.host_call.suspended:  # else it is asked when the host comes back
            self._gather(suspension)
        return withdraw

    def _gather(self, suspension: Suspension) -> None:
        """Ask the host soon: servers often ask several questions at once."""
        if not suspension.gathering:
            suspension.gathering = True
            asyncio.get_running_loop().call_later(GATHER, self._ask, suspension)

    def _ask(self, suspension: Suspension) -> None:
        suspension.gathering = False
        host_call, kind = suspension.host_call, suspension.kind
        if kind == "held" and not suspension.open:
            return  # withdrawn meanwhile: the call goes on
        if suspension.rounds >= ROUNDS:
            suspension.decline()
            host_call.abandon("too many questions")
            host_call.give_up("protocol_error", "the server never stops asking")
        elif not host_call.moves(suspension, partial(self._hold, suspension)):
            self._hold(suspension)

    def _hold(self, suspension: Suspension) -> None:
        """Ask the host; the call stays in this process until it comes back."""
        kind = suspension.kind
        if kind == "held" and not suspension.open:
            return
        if suspension.host_call.suspend():
            self._reply(suspension, kind)
        else:
            suspension.decline()  # it was answered, or cancelled

    def _reply(self, suspension: Suspension, kind: SuspensionKind) -> None:
        if len(self._suspensions) >= MOST_PER_PRINCIPAL:
            self._expire(next(iter(self._suspensions)), FULL)
        elif len(self._expiry) >= MOST_SUSPENDED:
            next(iter(self._expiry.values()))(FULL)
        handle = self._states.new_handle()
        suspension.rounds += 1
        self._suspensions[handle] = suspension
        self._expiry[handle] = partial(self._expire, handle)
        suspension.expire = partial(self._expire, handle, LATE)
        suspension.timer = asyncio.get_running_loop().call_later(LIFETIME, suspension.expire)
        questions = {key: question for key, (question, _) in suspension.open.items()}
        state = self._states.sign(suspension.host_call.request, kind, handle=handle)
        suspension.host_call.reply_questions(input_required(questions, state))

    # The host is back

    def resume(self, handle: str) -> Suspension | None:
        """Take out a suspension, once; None if there is none."""
        suspension = self._suspensions.pop(handle, None)
        self._expiry.pop(handle, None)
        if suspension is not None and suspension.timer is not None:
            suspension.timer.cancel()
        return suspension

    def answer(self, suspension: Suspension, answers: Members) -> None:
        """Send the host's answers to the server; ask again for those that are missing."""
        given = {key: suspension.open.pop(key) for key in list(suspension.open) if key in answers}
        for key, (question, answered) in given.items():
            if question.method == ROOTS:
                self._remember(answers[key])
            answered(answers[key], b"")
        if suspension.open:
            self._gather(suspension)

    def _remember(self, roots: msgspec.Raw) -> None:
        try:
            if "roots" in read_members(roots):
                self.roots = roots
        except msgspec.DecodeError:
            return

    # The host does not come back

    def _expire(self, handle: str, reason: str) -> None:
        suspension = self.resume(handle)
        if suspension is not None:
            log.warning("%s: given up: %s", suspension.host_call.request.tool, reason)
            suspension.decline()
            suspension.host_call.cancel(reason)

    def close(self) -> None:
        """The host is gone: nobody will answer."""
        for handle in list(self._suspensions):
            self._expire(handle, "the host is gone")
