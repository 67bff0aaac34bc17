# shim: mcp_workbench.daemon.keeper -> mcp_workbench.daemon.host_registry
from mcp_workbench.daemon.host_registry import HostRegistry as Keeper
