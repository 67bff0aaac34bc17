"""MCP hosts: where their configuration files are, what is in them, and how our entry is edited."""
