# shim: mcp_workbench.wire.frames -> mcp_workbench.transport.json_text
from mcp_workbench.transport.json_text import HEAD as HEAD
from mcp_workbench.transport.json_text import SMALL as SMALL
from mcp_workbench.transport.json_text import LineFramer as LineFramer
