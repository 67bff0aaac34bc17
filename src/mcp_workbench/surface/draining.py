"""While we end: what is under way goes on, and what is new is turned away with a code."""

from __future__ import annotations

from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.translate import complete
from mcp_workbench.surface import texts
from mcp_workbench.surface.session import HostSession
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Envelope

_CALL = texts.error_texts(texts.DRAINING, texts.ENDING)
_OTHER = envelope.error_object(
    envelope.SERVER_ERROR, texts.ENDING, {texts.CODE_KEY: texts.DRAINING}
)


def turn_away(session: HostSession, message: Envelope) -> None:
    """Refuse a request. Answers, cancels and pings are heard as before."""
    id = bytes(message.id)
    if not message.method or not envelope.usable_id(id) or message.method == "ping":
        session.receive(message)
    elif message.method == "tools/call":
        result = complete(_CALL, STAMPS) if session.era.modern else _CALL
        session.put(envelope.answer(id, result), id)
    else:
        session.put(envelope.refusal(id, _OTHER), id)
