# shim: mcp_workbench.daemon.control_server -> mcp_workbench.daemon.control
"""Moved."""

from mcp_workbench.daemon.control import MOST_UNSENT as MOST_UNSENT
from mcp_workbench.daemon.control import ControlConnection as ControlConnection
from mcp_workbench.daemon.control import control_server as control_server
