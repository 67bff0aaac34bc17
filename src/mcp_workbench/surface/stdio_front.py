# shim: mcp_workbench.surface.stdio_front -> mcp_workbench.server.stdio
from mcp_workbench.server.stdio import StdioFront as StdioFront
