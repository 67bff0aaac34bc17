# shim: mcp_workbench.cli.ui.render -> mcp_workbench.cli.terminal
from mcp_workbench.cli.terminal import plain as plain
from mcp_workbench.cli.terminal import say_json as say_json
