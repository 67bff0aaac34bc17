# shim: mcp_workbench.downstream.memory -> mcp_workbench.upstream.cache
from mcp_workbench.upstream.cache import Memory as Memory, SWITCH as SWITCH
