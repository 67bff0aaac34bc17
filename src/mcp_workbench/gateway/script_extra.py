"""Whether `run_script` is offered. Nothing that runs scripts is loaded to find out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot

ANSWER_BUDGET = (
    25_000  # characters of a script's answer, where no server that it called has a budget
)


def has_scripts(snapshot: Snapshot) -> bool:
    """Whether the configuration switches scripts on, which only proxy mode has, and they can be run."""
    is_on = any(box.scripts for box in snapshot.toolboxes.values())
    if not is_on or snapshot.tool_mode != "proxy":
        return False
    from mcp_workbench.config.script_support import can_run_scripts  # only where they are on

    return can_run_scripts()
