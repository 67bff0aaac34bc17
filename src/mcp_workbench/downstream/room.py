# shim: mcp_workbench.downstream.room -> mcp_workbench.upstream.health
from mcp_workbench.upstream.health import FEW as FEW
