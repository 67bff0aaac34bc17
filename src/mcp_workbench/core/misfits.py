# shim: mcp_workbench.core.misfits -> mcp_workbench.schema.check
from mcp_workbench.schema.check import explain as misfits
