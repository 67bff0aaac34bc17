# shim: mcp_workbench.wire.exits -> mcp_workbench.transport.guard
from mcp_workbench.transport.guard import watch_exit as watch_exit
