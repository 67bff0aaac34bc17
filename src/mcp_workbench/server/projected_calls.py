"""Calls of `use_tool` that ask for a part of the result (`lines`, `select`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.gateway.interceptors import CallOutcome, Completed
from mcp_workbench.gateway.projected_results import ProjectResult, ResultReader
from mcp_workbench.protocol.extensions import without_tasks
from mcp_workbench.server.host_calls import HostCall
from mcp_workbench.server.own_definitions import has_read_result
from mcp_workbench.server.text import in_turns

if TYPE_CHECKING:
    from mcp_workbench.core.call_request import CallRequest
    from mcp_workbench.core.projection import Projection
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.transport.jsonrpc import Outcome


class ProjectedCall(HostCall):
    """Interceptors see the server's whole result; its host gets the part that it asked for."""

    needs_result = True
    _has_ended = False

    def __init__(
        self, session: HostSession, id: bytes, request: CallRequest, projection: Projection
    ) -> None:
        capabilities = without_tasks(request.capabilities)
        super().__init__(session, id, msgspec.structs.replace(request, capabilities=capabilities))
        self._projection = projection

    @property
    def results_owner(self) -> object:
        """Nobody: the budget applies to the part, not before it."""
        return None

    def settled(self, answer: Outcome) -> None:
        self.plain = False
        super().settled(answer)

    def deliver(self, outcome: CallOutcome) -> None:
        if self.suspended or not isinstance(outcome, Completed):  # suspended: it is delivered again
            super().deliver(outcome)
        else:
            self._has_ended = True
            self.session.run(self.id, self._reply_part, outcome.result)

    async def _reply_part(self, result: msgspec.Raw | bytes) -> None:
        self.reply(await in_turns(self._projector().of(result)))

    def cancel(self, reason: str) -> None:
        if not self._has_ended:  # otherwise it has its outcome; the session ends our task
            super().cancel(reason)

    def _projector(self) -> ProjectResult:
        view, address = self.view, self.request.tool.address
        spec = view.snapshot.find(address)  # it may be gone by now
        reads = has_read_result(view.snapshot)
        budget = view.snapshot.toolbox(address.toolbox).budget(spec) if spec and reads else 0
        reader = ResultReader(self.session.results_owner, budget, reads)
        return ProjectResult(self._projection, view.gateway.kept_results, reader)
