"""One call of a host, from its request to its one answer."""

from __future__ import annotations

from typing import Protocol

import msgspec

from mcp_workbench.callers import Caller
from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.era.revision import FOR_THE_HOST
from mcp_workbench.era.translate import with_token
from mcp_workbench.surface import texts
from mcp_workbench.wire import envelope


class Desk(Protocol):
    """Where answers go: each request is answered there once, or not at all when cancelled."""

    def reply(self, id: bytes, result: msgspec.Raw | bytes) -> None: ...
    def reply_own(self, id: bytes, result: bytes) -> None: ...
    def refuse(self, id: bytes, error: msgspec.Raw | bytes) -> None: ...
    def notify(self, method: str, params: bytes = b"", about: bytes = b"") -> None: ...


class HostCall(Caller):
    """A call whose outcome goes back to a host's request."""

    def __init__(self, desk: Desk, id: bytes, call: ToolCall, *, flat: bool) -> None:
        super().__init__(call)
        self._desk = desk
        self.id = id
        self._flat = flat

    def answered(self, result: msgspec.Raw | bytes) -> None:
        self._desk.reply(self.id, result)

    def refused(self, error: msgspec.Raw) -> None:
        """A server's own error passes as it is; under a flat name it becomes words for the model."""
        told = envelope.read_error(error) if self._flat else None
        if told is None or told.code in FOR_THE_HOST:
            self._desk.refuse(self.id, error)
            return
        text = f"[{self.call.tool}] Error: {told.message}"
        self._desk.reply_own(self.id, texts.error_texts("server_error", text))

    def failed(self, error: WorkbenchError) -> None:
        text = texts.flat_text(error, self.call.tool) if self._flat else error.message
        self._desk.reply_own(self.id, texts.error_texts(error.code, text, error.hint))

    def progressed(self, params: msgspec.Raw) -> None:
        token = self.call.meta.get("progressToken")
        if token is not None:
            self._desk.notify("notifications/progress", with_token(params, token), self.id)
