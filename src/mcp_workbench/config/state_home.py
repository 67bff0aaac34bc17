"""Where the folder is in which we keep what outlives us (`state_folder`): asked at every start."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # nothing is loaded to find out
if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "MCP_WORKBENCH_HOME"
NAME = ".mcp-workbench"


def state_home(environ: Mapping[str, str]) -> str:
    """Where our state lies; empty where nothing says so."""
    given = environ.get(VARIABLE)
    if given:
        return os.path.abspath(given)  # noqa: PTH100 - text in, text out
    home = environ.get("HOME") or (environ.get("USERPROFILE") if os.name == "nt" else None)
    return os.path.join(home, NAME) if home else ""  # noqa: PTH118
