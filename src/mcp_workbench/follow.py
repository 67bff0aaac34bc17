# shim: mcp_workbench.follow -> mcp_workbench.app
from mcp_workbench.app import following as following
