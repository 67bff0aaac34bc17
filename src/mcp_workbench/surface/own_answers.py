# shim: mcp_workbench.surface.own_answers -> mcp_workbench.server.own_tools
from mcp_workbench.server.own_tools import search_tools as searched
