# shim: mcp_workbench.core.names -> mcp_workbench.core.spec
# ruff: noqa
# fmt: off
from mcp_workbench.core.spec import SEPARATOR as SEPARATOR, ServerAddress as ServerAddress, ToolIdentifier as ToolIdentifier, generate_tool_name as generate_tool_name, parse_tool_name as parse_tool_name
