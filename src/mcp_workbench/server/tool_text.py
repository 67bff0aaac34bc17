# shim: mcp_workbench.server.tool_text -> mcp_workbench.server.own_tools
from mcp_workbench.server.own_tools import (
    full_text as full_text,
)
from mcp_workbench.server.own_tools import (
    opened_text as opened_text,
)
from mcp_workbench.server.own_tools import (
    signature_line as signature_line,
)
from mcp_workbench.server.own_tools import (
    tool_lines as tool_lines,
)
