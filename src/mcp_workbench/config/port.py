# shim: mcp_workbench.config.port -> mcp_workbench.config.http_settings
from mcp_workbench.config.http_settings import TOKEN_VARIABLE as VARIABLE
from mcp_workbench.config.http_settings import resolve_http as port_wish
