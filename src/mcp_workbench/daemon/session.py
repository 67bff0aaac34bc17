"""A joined host's conversation, which notes what its joiner may do again should we be killed.

What was not yet sent to a server may be sent by another process, and so may what its tool calls harmless
(`core/again`). Every doubt is noted before it arises, every certainty after.
"""

from __future__ import annotations

from typing import Any

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.daemon.note import CALL, OTHER, Note
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.surface.host_call import HostCall
from mcp_workbench.surface.session import HostSession
from mcp_workbench.wire.envelope import Envelope

CALLS = "tools/call"
_KNOWN = 10_000  # tools whose hints are kept in mind


class JoinedSession(HostSession):
    """Serves a host whose joiner reads our note."""

    def __init__(self, note: Note, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.note = note
        self.line = b""  # what is read just now, and
        self.count = 0  # how many lines of what came at once were read with it
        self.express.send = self._send_plainly
        self._hints: dict[ToolIdentifier, tuple[Connection, Definition, bool]] = {}

    def begun(self, message: Envelope) -> None:
        """Note a request before anything is done for it: until a call is sent, all may be done again.

        One that brings answers goes on with what is held here, and only here.
        """
        kind = CALL if message.method == CALLS else OTHER
        goes_on = b'"requestState"' in self.line
        self.note.begun(bytes(message.id), self.line, kind, again=not goes_on)

    # Calls, about to be sent and sent

    def _send_plainly(self, call: ToolCall, host_call: HostCall) -> bool:
        hint = self._hint(call.tool)
        self.note.begun(host_call.id, self.line, CALL, again=hint is True)
        if not self._workbench.send_plainly(call, host_call):
            return False
        if hint is None and host_call.connection is not None:
            again = self._harmless(host_call.connection, host_call)
            self.note.becomes(host_call.id, again=again)
        return True

    def use(self, host_call: HostCall) -> None:
        self._leaving(host_call)
        super().use(host_call)
        self._judge(host_call)

    async def _dispatch(self, host_call: HostCall) -> None:
        host_call.on_leaving = lambda: self._leaving(host_call)
        await super()._dispatch(host_call)
        self._judge(host_call)

    def _leaving(self, host_call: HostCall) -> None:
        """It may be sent now."""
        again = self._hint(host_call.call.tool) is True and host_call.is_repeatable()
        self.note.becomes(host_call.id, again=again)

    def _judge(self, host_call: HostCall) -> None:
        """Sent or not, it is known now."""
        if not self.under_way.has(host_call):
            return
        connection, again = host_call.connection, True
        if connection is not None:
            again = self._harmless(connection, host_call) and host_call.is_repeatable()
        self.note.becomes(host_call.id, again=again)

    def _harmless(self, connection: Connection, host_call: HostCall) -> bool:
        tool = host_call.call.tool
        hint = self._hint(tool)
        if hint is not None and self._hints[tool][0] is connection:
            return hint
        definition = connection.catalogue.tools.get(tool.tool)
        if definition is None:
            return False
        if len(self._hints) > _KNOWN:
            self._hints.clear()
        hint = host_call.is_harmless()
        self._hints[tool] = (connection, definition, hint)
        return hint

    def _hint(self, tool: ToolIdentifier) -> bool | None:
        """Whether it may run twice; None where its server has not said so in this definition."""
        known = self._hints.get(tool)
        if known is None:
            return None
        connection, definition, hint = known
        if connection.over or connection.catalogue.tools.get(tool.tool) is not definition:
            return None
        return hint
