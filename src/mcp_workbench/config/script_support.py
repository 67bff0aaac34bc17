"""Whether scripts can be offered: the extra `code`. Nothing of it is loaded to find out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec

from mcp_workbench.core.errors import Problem
from mcp_workbench.core.spec import Snapshot

INSTALL = "pip install 'mcp-workbench-gateway[code]'"
MODULE = "pydantic_monty"
CODE = "WB-CONF-048"


@cache
def can_run_scripts() -> bool:
    """Is the extra installed?"""
    return find_spec(MODULE) is not None


def script_warnings(snapshot: Snapshot) -> Iterator[Problem]:
    """Yields a warning if scripts are switched on and can't be offered."""
    if not any(box.scripts for box in snapshot.toolboxes.values()):
        return
    message, fix = "", ""
    if snapshot.tool_mode == "dynamic" and snapshot.naming == "bare":
        message = "'scripts' has no effect with bare names: run_script is not offered"
        fix = "remove it, or leave 'naming' out"
    elif not can_run_scripts():
        message = "scripts are switched on, but the extra 'code' is not installed: run_script is not offered"
        fix = INSTALL
    if message:
        yield Problem("scripts", message, fix, CODE, severity="warning")
