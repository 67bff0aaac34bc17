# shim: mcp_workbench.downstream.leases -> mcp_workbench.upstream.leases
from mcp_workbench.upstream.leases import MOST as MOST, MOST_OF_ONE as MOST_OF_ONE
