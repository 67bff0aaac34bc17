# shim: mcp_workbench.core.known -> mcp_workbench.core.catalogue
from mcp_workbench.core.catalogue import KnownCatalogue as Known
from mcp_workbench.core.catalogue import tool_change as compared
