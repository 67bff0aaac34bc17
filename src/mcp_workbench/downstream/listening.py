# shim: mcp_workbench.downstream.listening -> mcp_workbench.upstream.subscriptions
from mcp_workbench.upstream.subscriptions import SHORTEST as SHORTEST
