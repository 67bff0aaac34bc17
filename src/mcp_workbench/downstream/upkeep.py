# shim: mcp_workbench.downstream.upkeep -> mcp_workbench.upstream.refresh
from mcp_workbench.upstream.refresh import GATHER as GATHER, REFRESH_PAUSE as REFRESH_PAUSE
