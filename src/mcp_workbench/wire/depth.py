# shim: mcp_workbench.wire.depth -> mcp_workbench.transport.json_text
from mcp_workbench.transport.json_text import DEPTH as DEPTH
from mcp_workbench.transport.json_text import MOST_NEAR as MOST_NEAR
from mcp_workbench.transport.json_text import MOST_QUOTES as MOST_QUOTES
from mcp_workbench.transport.json_text import read_json as read_json
from mcp_workbench.transport.json_text import too_deep as too_deep
