# shim: mcp_workbench.wire.child -> mcp_workbench.transport.process
from mcp_workbench.transport.process import EXIT_DRAIN as LAST_WORDS
from mcp_workbench.transport.process import FIRM as FIRM
from mcp_workbench.transport.process import POLITE as POLITE
from mcp_workbench.transport.process import STDERR_BYTES as STDERR_BYTES
from mcp_workbench.transport.process import ChildProcess as Child
from mcp_workbench.transport.process import Pipes as Pipes
from mcp_workbench.transport.process import ProcessSpec as Launch
from mcp_workbench.transport.process import running_child as running_child
