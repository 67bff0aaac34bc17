# shim: mcp_workbench.cli.render -> mcp_workbench.cli.ui.render
from mcp_workbench.cli.ui.render import plain as plain, say_json as say_json
