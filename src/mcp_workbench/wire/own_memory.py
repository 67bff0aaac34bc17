# shim: mcp_workbench.wire.own_memory -> mcp_workbench.transport.process
from mcp_workbench.transport.process import PR_SET_DUMPABLE as PR_SET_DUMPABLE
from mcp_workbench.transport.process import close_to_others as close_to_others
