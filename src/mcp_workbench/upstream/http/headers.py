# shim: mcp_workbench.upstream.http.headers -> mcp_workbench.upstream.http.requests
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.http.requests import modern_headers as modern_headers
from mcp_workbench.upstream.http.responses import screen_tools as screen_tools
