# shim: mcp_workbench.daemon.alone -> mcp_workbench.daemon.resume
from mcp_workbench.daemon.resume import Resumed as Resumed
from mcp_workbench.daemon.resume import resumption as resumption
