# shim: mcp_workbench.config.findings -> mcp_workbench.config.validate
"""Moved."""

from mcp_workbench.config.validate import MOST as MOST
