# shim: mcp_workbench.cli.scripts -> mcp_workbench.cli.completion_scripts
from mcp_workbench.cli.completion_scripts import ASKED as ASKED
