# shim: mcp_workbench.downstream.http_faults -> mcp_workbench.upstream.http.errors
from mcp_workbench.upstream.http.errors import Failed as Failed, Keeping as Keeping, LONGEST_WAIT as LONGEST_WAIT, retry_after as retry_after
