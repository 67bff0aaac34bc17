# shim: mcp_workbench.surface.flat_tools -> mcp_workbench.server.tool_definitions
from mcp_workbench.server.tool_definitions import flat_definition as flat_definition, flat_definitions as flat_definitions
