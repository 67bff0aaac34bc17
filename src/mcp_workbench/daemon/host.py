# shim: mcp_workbench.daemon.host -> mcp_workbench.daemon.joined_hosts
"""Moved."""

from mcp_workbench.daemon.joined_hosts import JoinedFront as JoinedFront
from mcp_workbench.daemon.joined_hosts import JoinedHost as JoinedHost
