"""What a legacy server asks in requests of its own, and the answers on their way back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.downstream.conversation import Conversation
from mcp_workbench.downstream.hosts import Host
from mcp_workbench.era.questions import CAPABILITY_OF, asked_by, may_ask
from mcp_workbench.era.translate import Members, read_members
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope


class OpenQuestions:
    """The questions of one connection that have no answer yet."""

    def __init__(self, address: ServerAddress, host: Host | None) -> None:
        self._address = address
        self._host = host
        self._open: dict[bytes, Callable[[], None]] = {}
        self.declared: Members = {}

    @property
    def any(self) -> bool:
        return bool(self._open)

    def declare(self) -> Members:
        """What the server is told that it may ask for, from here on."""
        self.declared = {} if self._host is None else self._host.asking_capabilities()
        return self.declared

    def asked(self, talk: Conversation, message: Envelope) -> None:
        """A request of the server: a sign of life is ours to give, the rest is the host's."""
        id, method = bytes(message.id), message.method
        if method == "ping":
            talk.channel.send(envelope.answer(id, b"{}"))
        elif self._host is None or not may_ask(method, self.declared):
            self._refuse(talk, id, method)
        else:
            try:
                question = asked_by(self._address, method, message.params or b"{}")
            except msgspec.DecodeError as error:
                told = envelope.error_object(envelope.INVALID_PARAMS, str(error))
                talk.channel.send(envelope.refusal(id, told))
                return
            self._open[id] = lambda: None
            caller = talk.pending.oldest(lambda waiter: not waiter.suspended)
            self._open[id] = self._host.ask(question, caller, partial(self._answered, talk, id))

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
        talk.channel.send(frame)

    def _refuse(self, talk: Conversation, id: bytes, method: str) -> None:
        lacks = CAPABILITY_OF.get(method)
        why = f"Method not found: {method}" + (f" (the host takes no {lacks})" if lacks else "")
        error = envelope.error_object(envelope.METHOD_NOT_FOUND, why)
        talk.channel.send(envelope.refusal(id, error))
