# shim: mcp_workbench.daemon.lock -> mcp_workbench.daemon.paths
from mcp_workbench.daemon.paths import lock_holder as holder
