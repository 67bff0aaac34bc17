# shim: mcp_workbench.downstream.room -> mcp_workbench.upstream.health
from mcp_workbench.upstream.health import ALWAYS_ADMITTED as FEW
