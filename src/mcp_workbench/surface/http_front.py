# shim: mcp_workbench.surface.http_front -> mcp_workbench.server.http.front
from mcp_workbench.server.http.front import HttpFront as HttpFront
