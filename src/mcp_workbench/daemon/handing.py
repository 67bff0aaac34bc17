# shim: mcp_workbench.daemon.handing -> mcp_workbench.daemon.attached
from mcp_workbench.daemon.attached import ANSWER as ANSWER
from mcp_workbench.daemon.attached import BEAT as BEAT
