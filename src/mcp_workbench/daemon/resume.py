# shim: mcp_workbench.daemon.resume -> mcp_workbench.daemon.crash_journal
"""Moved."""

from mcp_workbench.daemon.crash_journal import Resumed as Resumed
from mcp_workbench.daemon.crash_journal import resumption as resumption
