# shim: mcp_workbench.server.tool_text -> mcp_workbench.server.own_tools
from mcp_workbench.server.own_tools import (
    full_text as full_text,
    opened_text as opened_text,
    signature_line as signature_line,
    tool_lines as tool_lines,
)
