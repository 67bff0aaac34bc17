"""Calls that are looked at more closely: before they are sent, or after they are answered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.core.steps import TooComplex
from mcp_workbench.surface.host_call import Desk, HostCall
from mcp_workbench.surface.results import KeptResults, within_budget
from mcp_workbench.surface.teaching import explained
from mcp_workbench.workbench import Workbench

Result = msgspec.Raw | bytes


class BudgetedCall(HostCall):
    """A call whose result may have so many characters of text."""

    def __init__(self, desk: Desk, id: bytes, call: ToolCall, cut: Callable[[Result], Result]):
        super().__init__(desk, id, call, flat=False)
        self._cut = cut

    def answered(self, result: Result) -> None:
        super().answered(self._cut(result))


def kept_results(workbench: Workbench) -> KeptResults:
    """Those of all hosts, so that all of them together are bounded."""
    return workbench.beside.setdefault("results", KeptResults())


def careful_call(
    desk: Desk, id: bytes, call: ToolCall, workbench: Workbench, owner: object
) -> HostCall:
    """The call with the budget that its server has; a plain one where it has none."""
    box = workbench.snapshot.toolboxes.get(call.tool.toolbox)
    spec = box.servers.get(call.tool.server) if box else None
    budget = box.budget(spec) if box and spec else 0
    if not budget:
        return HostCall(desk, id, call, flat=False)
    store = kept_results(workbench)
    return BudgetedCall(
        desk, id, call, partial(within_budget, budget=budget, store=store, owner=owner)
    )


def validated(workbench: Workbench, call: ToolCall) -> ServerSpec | None:
    """The server whose entry wants the arguments looked at, if it does."""
    box = workbench.snapshot.toolboxes.get(call.tool.toolbox)
    spec = box.servers.get(call.tool.server) if box else None
    return spec if spec is not None and spec.validate else None


def _explained(definition: Definition, call: ToolCall) -> str:
    """What is wrong with the arguments; nothing where only the server can tell."""
    try:
        return explained(definition, call)
    except TooComplex:
        return ""


async def check(
    workbench: Workbench, spec: ServerSpec, host_call: HostCall, begin: Callable[[HostCall], None]
) -> None:
    """Begin the call if its tool's schema allows its arguments; otherwise it has failed."""
    call = host_call.call
    try:
        await workbench.prepare(call)
        for connection in workbench.live((spec,)):
            definition = connection.catalogue.tools.get(call.tool.tool)
            told = "" if definition is None else _explained(definition, call)
            if told:
                problems, _, signature = told.partition("\n")
                raise InvalidCall(f"Invalid parameters: {problems}", hint=signature)
    except WorkbenchError as error:
        host_call.failed(error)
    else:
        begin(host_call)
