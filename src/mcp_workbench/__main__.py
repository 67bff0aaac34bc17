"""`python -m mcp_workbench` is the command."""

from mcp_workbench.cli.main import main

main()
