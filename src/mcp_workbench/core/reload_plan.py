# shim: mcp_workbench.core.reload_plan -> mcp_workbench.gateway.reload
# ruff: noqa
# fmt: off
from mcp_workbench.gateway.reload import Reloaded as Reloaded, ReloadPlan as ReloadPlan, applied_now as applied_now, plan_reload as plan_reload, servers_of as servers_of
