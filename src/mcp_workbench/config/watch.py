# shim: mcp_workbench.config.watch -> mcp_workbench.config.load
"""Moved."""

from mcp_workbench.config.load import FileWatch as FileWatch
from mcp_workbench.config.load import LoadResult as LoadResult
