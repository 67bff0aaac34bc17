"""A workbench with its inside at hand, for tests that look at more than a Python program can."""

from __future__ import annotations

from mcp_workbench.gateway.views import View
from mcp_workbench.gateway.workbench import Gateway, Workbench


class InsideWorkbench(Workbench):
    """A workbench as a Python program has it, and its gateway."""

    @property
    def gateway(self) -> Gateway:
        return self._gateway

    @property
    def view(self) -> View:
        return self._gateway.view
