# shim: mcp_workbench.surface.calls -> mcp_workbench.server.calls
from mcp_workbench.server.calls import HostCall as HostCall
