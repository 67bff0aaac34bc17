# shim: mcp_workbench.server.tool_definitions -> mcp_workbench.server.session_tools
from mcp_workbench.server.session_tools import (
    MOST_HITS as MOST_HITS,
)
from mcp_workbench.server.session_tools import (
    flat_definition as flat_definition,
)
from mcp_workbench.server.session_tools import (
    flat_definitions as flat_definitions,
)
from mcp_workbench.server.session_tools import (
    open_toolbox_definition as open_toolbox_definition,
)
from mcp_workbench.server.session_tools import (
    opened_json as opened_json,
)
from mcp_workbench.server.session_tools import (
    own_definitions as own_definitions,
)
from mcp_workbench.server.session_tools import (
    use_tool_definition as use_tool_definition,
)
