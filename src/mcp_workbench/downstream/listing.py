# shim: mcp_workbench.downstream.listing -> mcp_workbench.upstream.tools
from mcp_workbench.upstream.tools import TOO_LARGE as TOO_LARGE, Unlistable as Unlistable, list_tools as list_tools
