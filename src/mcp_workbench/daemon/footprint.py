# shim: mcp_workbench.daemon.footprint -> mcp_workbench.daemon.status
from mcp_workbench.daemon.status import with_memory as measured
