# shim: mcp_workbench.downstream.waiters -> mcp_workbench.upstream.responses
from mcp_workbench.upstream.responses import Loss as Loss, Lost as Lost, Waiter as Waiter
