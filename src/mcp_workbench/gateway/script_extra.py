"""Whether `run_script` is offered. Nothing that runs scripts is loaded to find out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot

ANSWER_BUDGET = (
    25_000  # characters of a script's answer, where no server that it called has a budget
)


def has_bare_names(snapshot: Snapshot) -> bool:
    return snapshot.tool_mode == "dynamic" and snapshot.naming == "bare"


def has_scripts(snapshot: Snapshot) -> bool:
    """Whether the configuration switches scripts on, and they can be run. With bare names no tool is ours."""
    is_on = any(box.scripts for box in snapshot.toolboxes.values())
    if not is_on or has_bare_names(snapshot):
        return False
    from mcp_workbench.config.script_support import can_run_scripts  # only where they are on

    return can_run_scripts()
