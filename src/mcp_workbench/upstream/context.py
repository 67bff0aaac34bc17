# shim: mcp_workbench.upstream.context -> mcp_workbench.upstream.connection
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.connection import PoolContext as PoolContext

__name__ = "mcp_workbench.upstream.connection"  # the logger that commands silence
