# shim: mcp_workbench.daemon.host_registry -> mcp_workbench.daemon.joined_hosts
"""Moved."""

from mcp_workbench.daemon.joined_hosts import HostRegistry as HostRegistry
