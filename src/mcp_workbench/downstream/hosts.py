# shim: mcp_workbench.downstream.hosts -> mcp_workbench.upstream.server_requests
from mcp_workbench.upstream.server_requests import ConnectionHost as Host
