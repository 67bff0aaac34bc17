# shim: mcp_workbench.core.codes -> mcp_workbench.core.error_codes
from mcp_workbench.core.error_codes import CODES as CODES
