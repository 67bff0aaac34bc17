# shim: mcp_workbench.upstream.leases -> mcp_workbench.upstream.pool
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.pool import MOST_CONNECTIONS as MOST_CONNECTIONS, MOST_PER_PRINCIPAL as MOST_PER_PRINCIPAL
