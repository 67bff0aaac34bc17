# shim: mcp_workbench.server.tools -> mcp_workbench.server.session_tools
from mcp_workbench.server.session_tools import ToolView as ToolView
