# shim: mcp_workbench.daemon.front -> mcp_workbench.daemon.host
from mcp_workbench.daemon.host import JoinedFront as JoinedFront
