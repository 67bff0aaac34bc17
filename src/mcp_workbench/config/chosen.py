# shim: mcp_workbench.config.chosen -> mcp_workbench.config.load
from mcp_workbench.config.load import chosen_snapshot as chosen_snapshot
from mcp_workbench.config.load import owner_notice as owner_notice
