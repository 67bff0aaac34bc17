# shim: mcp_workbench.surface.http_principals -> mcp_workbench.server.http.access
from mcp_workbench.server.http.access import Principals as Principals
