"""MCP Workbench as an MCP server: the only package that replies to hosts."""
