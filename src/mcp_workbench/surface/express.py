"""The commonest request, read in one step: a legacy host calls `use_tool`, with nothing unusual.

What does not fit is left alone: the session reads it again, and says what is wrong with it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Protocol

import msgspec

from mcp_workbench.callers import Way
from mcp_workbench.core.call import ToolCall
from mcp_workbench.express import Leaving, Route
from mcp_workbench.surface.beside_tools import BesideTools
from mcp_workbench.surface.host_call import Desk, HostCall, may_be_error
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.meta_tools import OPENING_BRACE, read_tool
from mcp_workbench.surface.reading import HostEra
from mcp_workbench.wire.depth import too_deep
from mcp_workbench.wire.envelope import NOTHING, Outcome
from mcp_workbench.workbench import Workbench

MOST_ROUTES = 256  # one tool can be written in many ways, and
LONGEST = 1024  # bytes; in very long ones


class _UseTool(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    tool: msgspec.Raw
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _Params(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: Literal["use_tool"]
    arguments: _UseTool
    meta: msgspec.Raw = msgspec.field(default=NOTHING, name="_meta")


class _Request(msgspec.Struct, gc=False):
    id: msgspec.Raw
    method: Literal["tools/call"]
    params: _Params


_read = msgspec.json.Decoder(_Request).decode


class ExpressCall(HostCall):
    """A call of a legacy host to a legacy server. What is rarely asked of it is made when it is."""

    def __init__(
        self, desk: Desk, id: bytes, route: Route, arguments: msgspec.Raw, way: Way
    ) -> None:
        self._desk = desk
        self.id = id
        self._route = route
        self._arguments = arguments
        self.connection = route.connection
        self.way = way
        self.plain = True

    @cached_property
    def call(self) -> ToolCall:
        declared = self._desk.questions.declared_once
        params = {"arguments": self._arguments}
        return ToolCall(self._route.tool, params, capabilities=declared)

    def settled(self, answer: Outcome) -> None:
        result = answer.result
        if self.plain and result and not may_be_error(result):
            self._desk.reply(self.id, result)
        else:
            super().settled(answer)


class Host(Desk, Protocol):
    """The session whose requests are taken."""

    @property
    def era(self) -> HostEra: ...


class ExpressLane:
    """Takes what it can; `take` says whether it did."""

    def __init__(self, host: Host, workbench: Workbench, menu: Menu, beside: BesideTools) -> None:
        self._host = host
        self._under_way = host.under_way
        self._is_used = (
            host.under_way.__contains__
        )  # `in` looks it up each time, for what is not quite a dict
        self._workbench = workbench
        self._menu = menu
        self._beside = beside
        self.routes: dict[bytes, Route] = {}  # by how a host writes the tool
        self.leaving: Leaving | None = None  # told before a call is sent

    def take(self, line: bytes) -> bool:
        if not line.isascii():
            return False
        try:
            request = _read(line)
        except (msgspec.DecodeError, RecursionError):
            return False
        id, wish = bytes(request.id), request.params.arguments
        arguments, tool = wish.arguments, bytes(wish.tool)
        if (
            request.params.meta
            or not id.isdigit()
            or self._is_used(id)
            or self._beside.log_level is not None
            or memoryview(arguments)[0] != OPENING_BRACE
            or too_deep(line)
        ):
            return False
        route = self.routes.get(tool) or self._find(tool)
        if route is None:
            return False
        call = ExpressCall(self._host, id, route, arguments, self._workbench)
        if not route.send(call, arguments, self.leaving):
            self.routes.pop(tool, None)  # looked for anew next time
            return False
        self._under_way[id] = call
        return True

    def _find(self, written: bytes) -> Route | None:
        """The route to the tool that is written so, from here on known; those that are gone are not."""
        if self._menu.careful or not self._host.era.legacy or len(written) > LONGEST:
            return None
        tool = read_tool(written)
        route = None if tool is None else self._workbench.route(tool)
        if route is None:
            return None
        for old in [old for old, known in self.routes.items() if known.is_gone()]:
            del self.routes[old]
        if len(self.routes) >= MOST_ROUTES:
            self.routes.clear()
        self.routes[written] = route
        return route
