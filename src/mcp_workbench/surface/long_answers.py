# shim: mcp_workbench.surface.long_answers -> mcp_workbench.server.long_answers
from mcp_workbench.server.long_answers import collect as in_turns, quoted as quoted
