# shim: mcp_workbench.hosts.launch -> mcp_workbench.hosts.own_entry
"""Moved."""

from mcp_workbench.hosts.own_entry import launch as launch
