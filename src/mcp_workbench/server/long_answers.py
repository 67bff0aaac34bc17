# shim: mcp_workbench.server.long_answers -> mcp_workbench.server.text
from mcp_workbench.server.text import collect as collect
from mcp_workbench.server.text import quoted as quoted
