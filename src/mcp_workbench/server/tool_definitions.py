# shim: mcp_workbench.server.tool_definitions -> mcp_workbench.server.session_tools
from mcp_workbench.server.session_tools import (
    MOST_HITS as MOST_HITS,
    flat_definition as flat_definition,
    flat_definitions as flat_definitions,
    open_toolbox_definition as open_toolbox_definition,
    opened_json as opened_json,
    own_definitions as own_definitions,
    use_tool_definition as use_tool_definition,
)
