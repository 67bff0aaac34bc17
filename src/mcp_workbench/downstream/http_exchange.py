# shim: mcp_workbench.downstream.http_exchange -> mcp_workbench.upstream.http.exchange
from mcp_workbench.upstream.http.exchange import Exchange as Exchange, OutgoingRequest as Asked
