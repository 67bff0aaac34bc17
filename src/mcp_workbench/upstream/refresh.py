# shim: mcp_workbench.upstream.refresh -> mcp_workbench.upstream.connection
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.connection import GATHER as GATHER, REFRESH_PAUSE as REFRESH_PAUSE
