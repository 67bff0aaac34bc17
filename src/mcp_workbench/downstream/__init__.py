# shim: mcp_workbench.downstream -> mcp_workbench.upstream
