"""Negotiation with a server: sends what `protocol.handshake` decides, and reports what comes back."""

from __future__ import annotations

import asyncio

import msgspec

from mcp_workbench.core.raw_json import Members
from mcp_workbench.protocol import handshake
from mcp_workbench.protocol.handshake import (
    IMPLEMENTATION,
    Agreed,
    Answered,
    HandshakeRefused,
    HungUp,
    Silence,
    Startover,
    is_modern,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Outcome
from mcp_workbench.upstream.conversation import Conversation, Failure, ResponseHandler


async def perform_handshake(
    conversation: Conversation,
    first: handshake.Step,
    capabilities: Members,
    patience: float = handshake.PROBE_PATIENCE,
) -> Agreed | Startover | HandshakeRefused:
    """Agree with the server on an era and a revision. The caller limits the time."""
    events: asyncio.Queue[handshake.HandshakeEvent] = asyncio.Queue()
    state, actions = first
    while True:
        for action in actions:
            params = handshake.params_of(action.method, IMPLEMENTATION, capabilities)
            conversation.begin(action.method, params, _OpeningResponse(action.method, events))
        if isinstance(state, Agreed):
            if not is_modern(state.revision):
                conversation.channel.send(jsonrpc.notification("notifications/initialized"))
            return state
        if isinstance(state, Startover | HandshakeRefused):
            return state
        state, actions = handshake.step(state, await _next_event(events, state, patience))


class _OpeningResponse(ResponseHandler):
    """Turns the response to one opening request into an event of the negotiation."""

    def __init__(self, method: str, events: asyncio.Queue[handshake.HandshakeEvent]) -> None:
        self._method = method
        self._events = events

    def settled(self, answer: Outcome) -> None:
        if answer.error:
            error = jsonrpc.read_error(answer.error)
            event = Answered(self._method, code=error.code or -1, message=error.message)
        else:
            event = Answered(self._method, bytes(answer.result))
        self._events.put_nowait(event)

    def lost(self, failure: Failure) -> None:
        self._events.put_nowait(HungUp())

    def progressed(self, params: msgspec.Raw) -> None:
        """Opening requests ask for no progress."""


async def _next_event(
    events: asyncio.Queue[handshake.HandshakeEvent],
    state: handshake.HandshakeState,
    patience: float,
) -> handshake.HandshakeEvent:
    try:
        async with asyncio.timeout(patience if handshake.has_fallback(state) else None):
            return await events.get()
    except TimeoutError:
        return Silence()
