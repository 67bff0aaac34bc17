# shim: mcp_workbench.demo.tools -> mcp_workbench.demo.servers
"""Moved."""

from mcp_workbench.demo.servers import SERVERS as SERVERS
