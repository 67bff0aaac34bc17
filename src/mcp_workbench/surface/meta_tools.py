# shim: mcp_workbench.surface.meta_tools -> mcp_workbench.server.tool_definitions
from mcp_workbench.server.tool_definitions import MOST_HITS as MOST_HITS, opened_json as opened_json, own_definitions as own_definitions
