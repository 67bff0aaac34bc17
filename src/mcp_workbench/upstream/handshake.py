"""Handshake: performs the steps that `era.negotiate` decides, over a real connection."""

from __future__ import annotations

import asyncio

import msgspec

from mcp_workbench.core.spec import Era
from mcp_workbench.era import negotiate
from mcp_workbench.era.negotiate import Agreed, Answered, HungUp, Refused, Silence, Startover
from mcp_workbench.era.ourselves import OURSELVES
from mcp_workbench.era.revision import is_modern
from mcp_workbench.era.translate import Members
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.responses import Failure, ResponseHandler
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Outcome


class _OpeningResponse(ResponseHandler):
    """Turns the response to one opening request into an event of the negotiation."""

    def __init__(self, method: str, events: asyncio.Queue[negotiate.Event]) -> None:
        self._method = method
        self._events = events

    def settled(self, answer: Outcome) -> None:
        if answer.error:
            error = envelope.read_error(answer.error)
            event = Answered(self._method, code=error.code or -1, message=error.message)
        else:
            event = Answered(self._method, bytes(answer.result))
        self._events.put_nowait(event)

    def lost(self, failure: Failure) -> None:
        self._events.put_nowait(HungUp())

    def progressed(self, params: msgspec.Raw) -> None:
        """Opening requests ask for no progress."""


async def perform_handshake(
    conversation: Conversation, era: Era, capabilities: Members
) -> Agreed | Startover | Refused:
    """Agree with the server on an era and a revision. The caller limits the time."""
    events: asyncio.Queue[negotiate.Event] = asyncio.Queue()
    state, actions = negotiate.first_step(era)
    while True:
        for action in actions:
            params = negotiate.params_of(action.method, OURSELVES, capabilities)
            conversation.begin(action.method, params, _OpeningResponse(action.method, events))
        if isinstance(state, Agreed):
            if not is_modern(state.revision):
                conversation.channel.send(envelope.notification("notifications/initialized"))
            return state
        if isinstance(state, Startover | Refused):
            return state
        state, actions = negotiate.step(state, await _next(events, state))


async def _next(events: asyncio.Queue[negotiate.Event], state: negotiate.State) -> negotiate.Event:
    patience = negotiate.PROBE_PATIENCE if isinstance(state, negotiate.Probing) else None
    try:
        async with asyncio.timeout(patience):
            return await events.get()
    except TimeoutError:
        return Silence()
