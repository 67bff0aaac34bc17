# shim: mcp_workbench.surface -> mcp_workbench.server
