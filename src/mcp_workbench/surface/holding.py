# shim: mcp_workbench.surface.holding -> mcp_workbench.server.suspended_calls
from mcp_workbench.server.suspended_calls import MOST_PER_PRINCIPAL as MOST_OF_ONE
