"""A host on stdio: parses its lines and hands the messages to one session."""

from __future__ import annotations

from mcp_workbench.protocol.revisions import BATCHES
from mcp_workbench.server import parse
from mcp_workbench.server.session import HostSession
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.json_text import LineFramer
from mcp_workbench.transport.jsonrpc import Malformed
from mcp_workbench.transport.stdio import Channel


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
            try:
                message = parse.read(line)
            except Malformed as error:
                self._malformed(line, error)
            else:
                self._take(message)
        if self._framer.overflow is not None:
            self._refuse_large()

    def _refuse_large(self) -> None:
        message = "the message is too large (limits.messageBytes)"
        id = jsonrpc.salvaged_id(self._framer.take_overflow() or b"")
        self._refuse(Malformed(jsonrpc.INVALID_REQUEST, message, id))

    def _receive_line(self, line: bytes) -> None:
        try:
            message = parse.read(line)
        except Malformed as error:
            self._malformed(line, error)
        else:
            self._take(message)

    def _malformed(self, line: bytes, error: Malformed) -> None:
        if self._session.era.revision == BATCHES and jsonrpc.is_batch(line):
            self._receive_batch(line)
        else:
            self._refuse(error)

    def _receive_batch(self, line: bytes) -> None:
        try:
            members = jsonrpc.read_batch(line)
        except Malformed as error:
            self._refuse(error)
            return
        for member in members:
            if not jsonrpc.is_batch(member):
                self._receive_line(member)

    def _refuse(self, error: Malformed) -> None:
        refusal = jsonrpc.error_object(error.code, str(error))
        self._channel.send(jsonrpc.refusal(error.id, refusal))
