# shim: mcp_workbench.downstream.connection -> mcp_workbench.upstream.connection
from mcp_workbench.upstream.connection import Connection as Connection
