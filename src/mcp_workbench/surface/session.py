# shim: mcp_workbench.surface.session -> mcp_workbench.server.session
from mcp_workbench.server.session import HostSession as HostSession
