"""A host on stdio: parses its lines and hands the messages to one session."""

from __future__ import annotations

from mcp_workbench.era.revision import BATCHES
from mcp_workbench.server import parse
from mcp_workbench.server.session import HostSession
from mcp_workbench.wire import envelope
from mcp_workbench.wire.envelope import Malformed
from mcp_workbench.wire.frames import LineFramer
from mcp_workbench.wire.stdio import Channel


class StdioFront:
    """Reads lines for a session; refuses what is no message."""

    def __init__(self, session: HostSession, channel: Channel, message_bytes: int) -> None:
        self._session = session
        self._take = session.receive
        self._channel = channel
        self._framer = LineFramer(message_bytes)

    def receive(self, data: bytes) -> None:
        """Bytes from the host."""
        for line in self._framer.feed(data):
            self._receive_line(line)
        if self._framer.overflow is not None:
            self._refuse_large()

    def _refuse_large(self) -> None:
        message = "the message is too large (limits.messageBytes)"
        id = envelope.salvaged_id(self._framer.take_overflow() or b"")
        self._refuse(Malformed(envelope.INVALID_REQUEST, message, id))

    def _receive_line(self, line: bytes) -> None:
        try:
            message = parse.read(line)
        except Malformed as error:
            if self._session.era.revision == BATCHES and envelope.is_batch(line):
                self._receive_batch(line)
            else:
                self._refuse(error)
        else:
            self._take(message)

    def _receive_batch(self, line: bytes) -> None:
        try:
            members = envelope.read_batch(line)
        except Malformed as error:
            self._refuse(error)
            return
        for member in members:
            if not envelope.is_batch(member):
                self._receive_line(member)

    def _refuse(self, error: Malformed) -> None:
        refusal = envelope.error_object(error.code, str(error))
        self._channel.send(envelope.refusal(error.id, refusal))
