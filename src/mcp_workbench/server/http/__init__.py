"""MCP over HTTP: hosts that send requests to our port."""
