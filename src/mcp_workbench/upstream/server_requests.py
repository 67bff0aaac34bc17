"""What a legacy server asks in requests of its own, and the answers on their way back.
Whom a server may ask, as seen from its connection."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

import msgspec

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.questions import (
    CAPABILITY_OF,
    MOST_A_MINUTE,
    MOST_OPEN,
    ROOTS,
    Answered,
    Question,
    asked_by,
    may_ask,
)
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.responses import Waiter
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope

log = logging.getLogger(__name__)

MINUTE = 60.0  # seconds
_BUSY = envelope.SERVER_ERROR


def _oldest(talk: Conversation) -> Waiter | None:
    """The call of a host that waits longest; first come those whose host waits too."""
    pending = talk.pending
    return pending.oldest(
        lambda waiter: waiter.asker is not None and not waiter.suspended
    ) or pending.oldest(lambda waiter: waiter.asker is not None)


class OpenQuestions:
    """The questions of one connection that have no answer yet."""

    def __init__(
        self,
        address: ServerAddress,
        host: Host | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._since = clock()
        self._count = 0  # since then
        self._is_busy = False
        self._is_deaf = False  # it was said that the server does not read
        self._address = address
        self.host = host
        self._open: dict[bytes, Callable[[], None]] = {}
        self.declared: Members = {}

    @property
    def any(self) -> bool:
        return bool(self._open)

    def declare(self, talk: Conversation) -> Members:
        """What the server is told that it may ask for, from here on."""
        talk.when_forgotten.append(self.withdraw_all)
        self.declared = {} if self.host is None else self.host.asking_capabilities()
        return self.declared

    def asked(self, talk: Conversation, message: Envelope) -> None:
        """A request of the server: a sign of life is ours to give, the rest is the host's."""
        id, method = bytes(message.id), message.method
        if method == "ping":
            self._reply(talk, envelope.answer(id, b"{}"))
        elif self.host is None or not may_ask(method, self.declared):
            self._refuse(talk, id, method)
        elif (
            id in self._open
        ):  # an answer could not tell them apart, nor would it count as one more
            told = envelope.error_object(
                envelope.INVALID_REQUEST, "a question under way has this id"
            )
            self._reply(talk, envelope.refusal(id, told))
        elif too_many := self._too_many():
            self._reply(talk, envelope.refusal(id, envelope.error_object(_BUSY, too_many)))
        else:
            try:
                question = asked_by(self._address, method, message.params or b"{}")
            except msgspec.DecodeError as error:
                told = envelope.error_object(envelope.INVALID_PARAMS, str(error))
                self._reply(talk, envelope.refusal(id, told))
                return
            self._put(talk, id, question, self.host)

    def _reply(self, talk: Conversation, frame: bytes) -> None:
        """Answer, unless the server leaves more unread than a message may have."""
        if talk.channel.backlog <= talk.message_bytes:
            talk.channel.send(frame)
        elif not self._is_deaf:
            self._is_deaf = True
            log.warning("%s asks and does not read: it gets no more answers", self._address)

    def _too_many(self) -> str:
        """Why one more question is not put to anybody; empty where it may be."""
        now = self._clock()
        if now - self._since > MINUTE:
            self._since, self._count = now, 0
        self._count += 1
        if len(self._open) >= MOST_OPEN:
            why = f"too many questions: {MOST_OPEN} wait for an answer"
        elif self._count > MOST_A_MINUTE:
            why = f"too many questions: more than {MOST_A_MINUTE} in a minute"
        else:
            return ""
        if not self._is_busy:
            self._is_busy = True  # told once: a server that does so does it often
            log.warning("%s: %s; the others are refused", self._address, why)
        return why

    def _put(self, talk: Conversation, id: bytes, question: Question, host: Host) -> None:
        caller = talk.pending.find(talk.about) if talk.about else None
        if caller is None or caller.asker is None:
            if len(talk.pending.askers()) > 1:
                log.warning("%s asks, and nobody can tell whom", self._address)
                told = envelope.error_object(envelope.INTERNAL_ERROR, "it is unclear who is asked")
                self._reply(talk, envelope.refusal(id, told))
                return
            caller = _oldest(talk)
        self._open[id] = lambda: None  # it may be answered at once
        withdraw = host.ask(question, caller, partial(self._answered, talk, id))
        if id in self._open:
            self._open[id] = withdraw

    def tell(self, host: Host, talk: Conversation, method: str) -> None:
        """Pass on what this host says of its roots, if the server was told that it has any."""
        if host is self.host and CAPABILITY_OF[ROOTS] in self.declared:
            talk.channel.send(envelope.notification(method))

    def cancelled(self, params: msgspec.Raw) -> None:
        """The server takes a question back."""
        try:
            id = bytes(read_members(params).get("requestId", b""))
        except msgspec.DecodeError:
            return
        if (withdraw := self._open.pop(id, None)) is not None:
            withdraw()

    def withdraw_all(self) -> None:
        """The server is gone, and nobody wants its answers."""
        for withdraw in self._open.values():
            withdraw()
        self._open.clear()

    def _answered(
        self,
        talk: Conversation,
        id: bytes,
        result: msgspec.Raw | bytes,
        error: msgspec.Raw | bytes,
    ) -> None:
        if self._open.pop(id, None) is None:
            return
        frame = envelope.answer(id, result) if result else envelope.refusal(id, error)
        self._reply(talk, frame)

    def _refuse(self, talk: Conversation, id: bytes, method: str) -> None:
        lacks = CAPABILITY_OF.get(method)
        why = f"Method not found: {method}" + (f" (the host takes no {lacks})" if lacks else "")
        error = envelope.error_object(envelope.METHOD_NOT_FOUND, why)
        self._reply(talk, envelope.refusal(id, error))


class Host(Protocol):
    """The host that owns a connection: whatever its server asks goes there."""

    @property
    def key(self) -> Hashable:
        """Hosts with the same key are the same to a server."""
        ...

    @property
    def owner(self) -> Hashable:
        """Who is behind it; hosts of one owner may have different keys."""
        ...

    @property
    def takes_turns(self) -> bool:
        """Does it come with one request and go, so that others may have its connections after it?"""
        ...

    @property
    def leases(self) -> dict[ServerAddress, Any]:
        """The connections that it has until it goes."""
        ...

    def asking_capabilities(self) -> Members:
        """What it may be asked for, as it declared it."""
        ...

    def ask(
        self, question: Question, caller: Waiter | None, answered: Answered
    ) -> Callable[[], None]:
        """Put a question that came during this call, if any; what is returned withdraws it."""
        ...
