"""Upstream: the MCP servers behind the workbench, and the connections to them."""
