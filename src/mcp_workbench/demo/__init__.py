"""Two small MCP servers to try the workbench with: `python -m mcp_workbench.demo SERVER`.

They stand alone (the standard library, nothing else) and speak both eras of the protocol on stdio.
"""
