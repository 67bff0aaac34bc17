# shim: mcp_workbench.daemon.joining -> mcp_workbench.daemon.attach
from mcp_workbench.daemon.attach import VARIABLE as VARIABLE
from mcp_workbench.daemon.attach import attach_host as join
