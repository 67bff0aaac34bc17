# shim: mcp_workbench.gateway.interview -> mcp_workbench.gateway.interactive
from mcp_workbench.gateway.interactive import Person as Person, interactive_session as interview
