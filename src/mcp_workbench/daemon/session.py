"""A joined host's conversation, which notes what its joiner may do again should we be killed.

What was not yet sent to a server may be sent by another process, and so may what its tool calls harmless
(`core/again`). Every doubt is noted before it arises, every certainty after.
"""

from __future__ import annotations

from typing import Any

from mcp_workbench.core.again import is_harmless
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.daemon.note import CALL, OTHER, Note
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.express import Route
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
        self.express.leaving = self._leaving_plainly
        self._hints: dict[ToolIdentifier, tuple[Definition, bool]] = {}

    def begun(self, message: Envelope) -> None:
        """Note a request before anything is done for it: until a call is sent, all may be done again.

        One that brings answers goes on with what is held here, and only here.
        """
        kind = CALL if message.method == CALLS else OTHER
        goes_on = b'"requestState"' in self.line
        self.note.begun(bytes(message.id), self.line, kind, again=not goes_on)

    # Calls, about to be sent and sent

    def _leaving_plainly(self, id: bytes, route: Route) -> None:
        again = self._judged(route.tool, route.connection)
        self.note.begun(id, self.line, CALL, again=again)

    def use(self, host_call: HostCall) -> None:
        self._leaving(host_call)
        super().use(host_call)
        self._judge(host_call)

    async def _dispatch(self, host_call: HostCall) -> None:
        host_call.on_leaving = lambda: self._leaving(host_call)
        await super()._dispatch(host_call)
        self._judge(host_call)

    def _leaving(self, host_call: HostCall) -> None:
        """It may be sent now, and nobody has a turn in between: on the connection that is there."""
        again = self._harmless(host_call.call.tool) and host_call.is_repeatable()
        self.note.becomes(host_call.id, again=again)

    def _judge(self, host_call: HostCall) -> None:
        """Sent or not, it is known now."""
        if not self.under_way.has(host_call):
            return
        sent_on, again = host_call.connection, True
        if sent_on is not None:
            again = self._judged(host_call.call.tool, sent_on) and host_call.is_repeatable()
        self.note.becomes(host_call.id, again=again)

    def _harmless(self, tool: ToolIdentifier) -> bool:
        """May it run twice, as far as its server has said? Where none is connected, nothing is said."""
        spec = self._workbench.snapshot.find(ServerAddress(tool.toolbox, tool.server))
        live = self._workbench.live([spec]) if spec is not None else []
        return bool(live) and self._judged(tool, live[0])

    def _judged(self, tool: ToolIdentifier, connection: Connection) -> bool:
        """Whether its definition of this moment calls it harmless; read once."""
        definition = connection.catalogue.tools.get(tool.tool)
        if definition is None:
            return False
        known = self._hints.get(tool)
        if known is not None and known[0] is definition:
            return known[1]
        if len(self._hints) > _KNOWN:
            self._hints.clear()
        harmless = is_harmless(definition.raw)
        self._hints[tool] = (definition, harmless)
        return harmless
