# shim: mcp_workbench.downstream.waiters -> mcp_workbench.upstream.responses
from mcp_workbench.upstream.responses import Failure as Loss, RequestFailed as Lost, ResponseHandler as Waiter
