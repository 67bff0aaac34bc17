# shim: mcp_workbench.surface.menu -> mcp_workbench.server.tools
from mcp_workbench.server.tools import ToolView as Menu
