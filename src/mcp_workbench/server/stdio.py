# shim: mcp_workbench.server.stdio -> mcp_workbench.server.session
from mcp_workbench.server.session import StdioFront as StdioFront
