# shim: mcp_workbench.upstream.exit_reason -> mcp_workbench.upstream.dial
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.dial import exit_reason as exit_reason
