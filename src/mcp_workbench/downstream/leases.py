# shim: mcp_workbench.downstream.leases -> mcp_workbench.upstream.leases
from mcp_workbench.upstream.leases import MOST_CONNECTIONS as MOST, MOST_PER_PRINCIPAL as MOST_OF_ONE
