# shim: mcp_workbench.config.embedded -> mcp_workbench.config.load
from mcp_workbench.config.load import demo_snapshot as demo_snapshot
