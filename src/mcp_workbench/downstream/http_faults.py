# shim: mcp_workbench.downstream.http_faults -> mcp_workbench.upstream.http.errors
from mcp_workbench.upstream.http.errors import ErrorContext as Keeping, LONGEST_WAIT as LONGEST_WAIT, retry_after as retry_after
# shim: mcp_workbench.downstream.http_faults -> mcp_workbench.upstream.responses
from mcp_workbench.upstream.responses import RequestFailed as Failed
