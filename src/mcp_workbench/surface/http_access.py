# shim: mcp_workbench.surface.http_access -> mcp_workbench.server.http.access
from mcp_workbench.server.http.access import Access as Access, is_loopback as is_loopback, names_of as names_of
