# shim: mcp_workbench.surface.results -> mcp_workbench.server.own_tools
from mcp_workbench.server.own_tools import read_result as read_result
