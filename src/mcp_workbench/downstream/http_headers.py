# shim: mcp_workbench.downstream.http_headers -> mcp_workbench.upstream.http.headers
from mcp_workbench.upstream.http.headers import modern_headers as modern_headers, screen_tools as screened
