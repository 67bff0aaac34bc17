# shim: mcp_workbench.daemon.attached -> mcp_workbench.daemon.attach
"""Moved."""

from mcp_workbench.daemon.attach import ANSWER as ANSWER
from mcp_workbench.daemon.attach import BEAT as BEAT
from mcp_workbench.daemon.attach import Takeover as Takeover
from mcp_workbench.daemon.attach import serve_attached as serve_attached
