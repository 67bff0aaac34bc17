# shim: mcp_workbench.hosts.reading -> mcp_workbench.hosts.read
from mcp_workbench.hosts.read import text_of as text_of
