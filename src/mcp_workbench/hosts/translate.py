# shim: mcp_workbench.hosts.translate -> mcp_workbench.hosts.read
"""Moved."""

from mcp_workbench.hosts.read import HostServer as HostServer
