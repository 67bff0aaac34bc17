# shim: mcp_workbench.surface.http_params -> mcp_workbench.server.http.modern
from mcp_workbench.server.http.modern import param_mismatch as differing
