# shim: mcp_workbench.daemon.report -> mcp_workbench.daemon.status
from mcp_workbench.daemon.status import DaemonInfo as About
