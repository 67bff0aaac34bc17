# shim: mcp_workbench.daemon.log -> mcp_workbench.daemon.lifecycle
"""Moved."""

from mcp_workbench.daemon.lifecycle import BoundedLog as BoundedLog
from mcp_workbench.daemon.paths import OWN_SOURCE as OWN_SOURCE
from mcp_workbench.daemon.paths import ROTATED as ROTATED
