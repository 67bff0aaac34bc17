# shim: mcp_workbench.core.reload -> mcp_workbench.core.reload_plan
from mcp_workbench.core.reload_plan import ReloadPlan as ReloadPlan
from mcp_workbench.core.reload_plan import Reloaded as Reloaded
from mcp_workbench.core.reload_plan import applied_now as settled
from mcp_workbench.core.reload_plan import plan_reload as plan_reload
from mcp_workbench.core.reload_plan import servers_of as servers_of
