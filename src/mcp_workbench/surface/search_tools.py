# shim: mcp_workbench.surface.search_tools -> mcp_workbench.server.own_tools
from mcp_workbench.server.own_tools import MOST_SIBLINGS as MOST_SIBLINGS, search_text as told
