"""The commonest request, read in one step: a legacy host calls `use_tool`, with nothing unusual.

What does not fit is left alone: the session reads it again, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.surface.beside_tools import BesideTools
from mcp_workbench.surface.host_call import Desk, HostCall
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.meta_tools import OPENING_BRACE, PlainCall
from mcp_workbench.surface.reading import HostEra
from mcp_workbench.workbench import Workbench


class _Request(msgspec.Struct, gc=False):
    id: msgspec.Raw
    method: Literal["tools/call"]
    params: PlainCall


_read = msgspec.json.Decoder(_Request).decode


class Host(Desk, Protocol):
    """The session whose requests are taken."""

    @property
    def era(self) -> HostEra: ...


class ExpressLane:
    """Takes what it can; `take` says whether it did."""

    def __init__(self, host: Host, workbench: Workbench, menu: Menu, beside: BesideTools) -> None:
        self._host = host
        self._era = host.era
        self.send: Callable[[ToolCall, HostCall], bool] = workbench.send_plainly
        self._under_way = host.under_way
        self._menu = menu
        self._beside = beside

    def take(self, line: bytes) -> bool:
        if not self._era.legacy or self._beside.log_level is not None or not line.isascii():
            return False
        try:
            request = _read(line)
        except (msgspec.DecodeError, RecursionError):
            return False
        id, plain = bytes(request.id), request.params
        wish = plain.arguments
        if (
            plain.meta
            or not id.isdigit()
            or id in self._under_way
            or self._menu.careful
            or memoryview(wish.arguments)[0] != OPENING_BRACE
        ):
            return False
        tool = ToolIdentifier(wish.tool.toolbox, wish.tool.server, wish.tool.tool)
        declared = self._host.questions.declared_once
        call = ToolCall(tool, {"arguments": wish.arguments}, capabilities=declared)
        host_call = HostCall(self._host, id, call, flat=False)
        if not self.send(call, host_call):
            return False
        self._under_way[id] = host_call
        return True
