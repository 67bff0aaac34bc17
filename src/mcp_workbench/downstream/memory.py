# shim: mcp_workbench.downstream.memory -> mcp_workbench.upstream.cache
from mcp_workbench.upstream.cache import CatalogueCache as Memory, SWITCH as SWITCH
