# shim: mcp_workbench.transport.guard -> mcp_workbench.transport.process
from mcp_workbench.transport.process import SCRIPT as SCRIPT
from mcp_workbench.transport.process import guard as guard
