# shim: mcp_workbench.server.calls -> mcp_workbench.server.host_calls
from mcp_workbench.server.host_calls import HostCall as HostCall
