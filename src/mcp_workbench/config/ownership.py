# shim: mcp_workbench.config.ownership -> mcp_workbench.config.file_access
from mcp_workbench.config.file_access import OWNERSHIP_CODES as CODES
from mcp_workbench.config.file_access import check_ownership as doubts_of
from mcp_workbench.config.file_access import ownership_notice as notice
