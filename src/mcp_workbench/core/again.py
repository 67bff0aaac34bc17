# shim: mcp_workbench.core.again -> mcp_workbench.core.call
from mcp_workbench.core.call import is_harmless as is_harmless
from mcp_workbench.core.call import may_send_again as may_send_again
