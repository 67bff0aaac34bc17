# shim: mcp_workbench.config.likeness -> mcp_workbench.config.expand
from mcp_workbench.config.expand import server_identity as likeness
