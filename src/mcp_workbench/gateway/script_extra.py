"""Whether scripts are switched on, and can be run here: the extra `code`, which is not loaded."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot

INSTALL = "pip install 'mcp-workbench-gateway[code]'"
MODULE = "pydantic_monty"
ANSWER_BUDGET = (
    25_000  # characters of a script's answer, where no server that it called has a budget
)


@cache
def can_run_scripts() -> bool:
    """Whether the extra is installed."""
    from importlib.util import find_spec  # only where scripts are switched on

    return find_spec(MODULE) is not None


def wants_scripts(snapshot: Snapshot) -> bool:
    """Whether the configuration switches scripts on, which only proxy mode has."""
    return snapshot.tool_mode == "proxy" and any(box.scripts for box in snapshot.toolboxes.values())


def has_scripts(snapshot: Snapshot) -> bool:
    """Whether `run_script` is offered."""
    return wants_scripts(snapshot) and can_run_scripts()
