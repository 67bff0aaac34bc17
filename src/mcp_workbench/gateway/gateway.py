# shim: mcp_workbench.gateway.gateway -> mcp_workbench.gateway.workbench
# ruff: noqa
# fmt: off
from mcp_workbench.gateway.workbench import Gateway as Gateway, Listener as Listener, OnReload as OnReload
