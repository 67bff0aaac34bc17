# shim: mcp_workbench.daemon.control_client -> mcp_workbench.daemon.control
"""Moved."""

from mcp_workbench.daemon.control import NoAnswer as NoAnswer
from mcp_workbench.daemon.control import connect as connect
from mcp_workbench.daemon.control import peer_credentials as peer_credentials
from mcp_workbench.daemon.control import request as request
from mcp_workbench.daemon.control import request_with_fds as request_with_fds
