# shim: mcp_workbench.downstream.standing -> mcp_workbench.upstream.subscriptions
from mcp_workbench.upstream.subscriptions import ConnectionId as Place, ServerNotification as Heard
