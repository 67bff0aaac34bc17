# shim: mcp_workbench.downstream.pool -> mcp_workbench.upstream.pool
from mcp_workbench.upstream.pool import ConnectionPool as ConnectionPool, TICK as TICK, owner_of as owner_of
