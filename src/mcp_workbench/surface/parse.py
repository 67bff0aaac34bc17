# shim: mcp_workbench.surface.parse -> mcp_workbench.server.parse
from mcp_workbench.server.parse import Message as Message, UseToolRequest as UseToolRequest, cancelled_id as cancelled_id, read as read, read_body as read_body, read_open_toolbox as read_open_toolbox, read_use_tool as read_use_tool
