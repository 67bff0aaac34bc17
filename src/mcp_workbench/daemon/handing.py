# shim: mcp_workbench.daemon.handing -> mcp_workbench.daemon.attach
from mcp_workbench.daemon.attach import ANSWER as ANSWER
from mcp_workbench.daemon.attach import BEAT as BEAT
