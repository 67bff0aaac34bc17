"""Requests that a legacy server sends (elicitation, sampling, roots), and the responses to them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

import msgspec

from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.elicitation import (
    CAPABILITY_OF,
    MOST_A_MINUTE,
    MOST_OPEN,
    ROOTS,
    AnswerCallback,
    Question,
    asked_by,
    may_ask,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Envelope
from mcp_workbench.upstream.conversation import Conversation, ResponseHandler

log = logging.getLogger(__name__)

MINUTE = 60.0  # seconds
_BUSY = jsonrpc.SERVER_ERROR


class ConnectionHost(Protocol):
    """The host that a connection belongs to: requests of its server go there."""

    @property
    def key(self) -> Hashable:
        """Hosts with the same key look the same to a server."""
        ...

    @property
    def owner(self) -> Hashable:
        """The principal; hosts of one principal may have different keys."""
        ...

    @property
    def takes_turns(self) -> bool:
        """Does it last for one request, so that others may lease its connections afterwards?"""
        ...

    @property
    def leases(self) -> dict[ServerAddress, Any]:
        """The connections that it holds until it leaves."""
        ...

    @property
    def is_legacy(self) -> bool:
        """Does it speak the legacy era, as its servers should if they can?"""
        ...

    @property
    def folder(self) -> str:
        """Its folder, if that is known and not ours."""
        ...

    def asking_capabilities(self) -> Members:
        """The capabilities for server requests, as it declared them."""
        ...

    def told_capabilities(self) -> Members:
        """The capabilities that its servers are told: these, and extensions."""
        ...

    def ask(
        self, question: Question, caller: ResponseHandler | None, answered: AnswerCallback
    ) -> Callable[[], None]:
        """Ask the user, on behalf of `caller` if it is known; the result withdraws the question."""
        ...


def _oldest(conversation: Conversation) -> ResponseHandler | None:
    """The oldest call of a host; one that is not suspended comes first."""
    pending = conversation.pending
    return pending.oldest(
        lambda handler: handler.asker is not None and not handler.suspended
    ) or pending.oldest(lambda handler: handler.asker is not None)


class ServerRequests:
    """The open requests of one server."""

    def __init__(
        self,
        address: ServerAddress,
        host: ConnectionHost | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._since = clock()
        self._count = 0  # of requests since then
        self._too_many_logged = False
        self._unread_logged = False
        self._address = address
        self.host = host
        self._open: dict[bytes, Callable[[], None]] = {}
        self.declared: Members = {}

    @property
    def any(self) -> bool:
        return bool(self._open)

    @property
    def is_legacy(self) -> bool:
        """Is there one host, and is it of the legacy era?"""
        return self.host is not None and self.host.is_legacy

    def declare(self, conversation: Conversation) -> Members:
        """The capabilities that the server is told, in the handshake and with our own requests."""
        conversation.on_session_lost.append(self.withdraw_all)
        if self.host is not None:
            self.declared = self.host.asking_capabilities()
            conversation.capabilities = self.host.told_capabilities()
        return conversation.capabilities

    def received(self, conversation: Conversation, message: Envelope) -> None:
        """Take a request of the server: answer a ping, pass the rest on to the host."""
        id, method = bytes(message.id), message.method
        if method == "ping":
            self._reply(conversation, jsonrpc.answer(id, b"{}"))
        elif self.host is None or not may_ask(method, self.declared):
            self._refuse(conversation, id, method)
        elif id in self._open:  # a response could not tell the two apart
            error = jsonrpc.error_object(
                jsonrpc.INVALID_REQUEST, "a question under way has this id"
            )
            self._reply(conversation, jsonrpc.refusal(id, error))
        elif too_many := self._too_many():
            self._reply(conversation, jsonrpc.refusal(id, jsonrpc.error_object(_BUSY, too_many)))
        else:
            try:
                question = asked_by(self._address, method, message.params or b"{}")
            except msgspec.DecodeError as misfit:
                error = jsonrpc.error_object(jsonrpc.INVALID_PARAMS, str(misfit))
                self._reply(conversation, jsonrpc.refusal(id, error))
                return
            self._forward(conversation, id, question, self.host)

    def _reply(self, conversation: Conversation, frame: bytes) -> None:
        """Send a response, unless the server leaves more unread than one message may have."""
        if conversation.channel.backlog <= conversation.message_bytes:
            conversation.channel.send(frame)
        elif not self._unread_logged:
            self._unread_logged = True
            log.warning("%s does not read our responses: no more are sent", self._address)

    def _too_many(self) -> str:
        """Why one more request is refused; empty where it is not."""
        now = self._clock()
        if now - self._since > MINUTE:
            self._since, self._count = now, 0
        self._count += 1
        if len(self._open) >= MOST_OPEN:
            reason = f"too many questions: {MOST_OPEN} wait for an answer"
        elif self._count > MOST_A_MINUTE:
            reason = f"too many questions: more than {MOST_A_MINUTE} in a minute"
        else:
            return ""
        if not self._too_many_logged:
            self._too_many_logged = True  # logged once: a server that does so does it often
            log.warning("%s: %s; the others are refused", self._address, reason)
        return reason

    def _forward(
        self, conversation: Conversation, id: bytes, question: Question, host: ConnectionHost
    ) -> None:
        caller = (
            conversation.pending.find(conversation.response_to)
            if conversation.response_to
            else None
        )
        if caller is None or caller.asker is None:
            if len(conversation.pending.askers()) > 1:
                log.warning(
                    "%s: a request can't be attributed to one host, and is refused", self._address
                )
                error = jsonrpc.error_object(
                    jsonrpc.INTERNAL_ERROR, "the request can't be attributed to one host"
                )
                self._reply(conversation, jsonrpc.refusal(id, error))
                return
            caller = _oldest(conversation)
        self._open[id] = lambda: None  # it may be answered at once
        withdraw = host.ask(question, caller, partial(self._answered, conversation, id))
        if id in self._open:
            self._open[id] = withdraw

    def tell(self, host: ConnectionHost, conversation: Conversation, method: str) -> None:
        """Pass on a notification of this host about its roots, if the server knows of them."""
        if host is self.host and CAPABILITY_OF[ROOTS] in self.declared:
            conversation.channel.send(jsonrpc.notification(method))

    def cancelled(self, params: msgspec.Raw) -> None:
        """The server cancelled one of its requests."""
        try:
            id = bytes(read_members(params).get("requestId", b""))
        except msgspec.DecodeError:
            return
        if (withdraw := self._open.pop(id, None)) is not None:
            withdraw()

    def withdraw_all(self) -> None:
        """The server is gone: withdraw all questions from the host."""
        for withdraw in self._open.values():
            withdraw()
        self._open.clear()

    def _answered(
        self,
        conversation: Conversation,
        id: bytes,
        result: msgspec.Raw | bytes,
        error: msgspec.Raw | bytes,
    ) -> None:
        if self._open.pop(id, None) is None:
            return
        frame = jsonrpc.answer(id, result) if result else jsonrpc.refusal(id, error)
        self._reply(conversation, frame)

    def _refuse(self, conversation: Conversation, id: bytes, method: str) -> None:
        missing = CAPABILITY_OF.get(method)
        hint = f" (the host takes no {missing})" if missing else ""
        message = f"Method not found: {method}{hint}"
        error = jsonrpc.error_object(jsonrpc.METHOD_NOT_FOUND, message)
        self._reply(conversation, jsonrpc.refusal(id, error))
