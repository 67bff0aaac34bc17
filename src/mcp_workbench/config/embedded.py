"""The configuration of those who have none yet: a toolbox `demo` that needs nothing but us."""

from __future__ import annotations

import sys

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec, Snapshot, StdioCommand, ToolboxSpec

TOOLBOX = "demo"
SERVERS = ("basics", "workshop")
DESCRIPTION = (
    "A demo, there being no configuration yet: text, numbers, dice, units. "
    "Next: write workbench-config.json and run `mcp-workbench check`."
)


def demo_snapshot() -> Snapshot:
    """One toolbox with our own two servers, started by the Python that runs us."""
    servers = {name: _server(name) for name in SERVERS}
    return Snapshot({TOOLBOX: ToolboxSpec(TOOLBOX, DESCRIPTION, servers)})


def _server(name: str) -> ServerSpec:
    # -P: what lies in the current folder is never imported instead of us
    args = ("-P", "-m", "mcp_workbench.demo", name)
    python = sys.executable.replace("${", "$${")  # a path, not a variable
    return ServerSpec(ServerAddress(TOOLBOX, name), StdioCommand(python, args))
