# shim: mcp_workbench.upstream.http.errors -> mcp_workbench.upstream.http.requests
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.http.requests import LONGEST_WAIT as LONGEST_WAIT, ErrorContext as ErrorContext, retry_after as retry_after
