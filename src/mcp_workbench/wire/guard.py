# shim: mcp_workbench.wire.guard -> mcp_workbench.transport.guard
from mcp_workbench.transport.guard import GUARDS as GUARDS
from mcp_workbench.transport.guard import PAUSE as PAUSE
from mcp_workbench.transport.guard import SCRIPT as SCRIPT
from mcp_workbench.transport.guard import SHELL as SHELL
from mcp_workbench.transport.guard import Guard as Guard
from mcp_workbench.transport.guard import guard as guard
