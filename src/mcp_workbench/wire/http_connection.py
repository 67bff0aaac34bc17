# shim: mcp_workbench.wire.http_connection -> mcp_workbench.transport.http.server
from mcp_workbench.transport.http.server import AT_ONCE as AT_ONCE
from mcp_workbench.transport.http.server import FEW as FEW
from mcp_workbench.transport.http.server import IDLE_TIME as IDLE_TIME
from mcp_workbench.transport.http.server import LINGER as LINGER
from mcp_workbench.transport.http.server import PIPELINED as PIPELINED
from mcp_workbench.transport.http.server import STALL_TIME as STALL_TIME
from mcp_workbench.transport.http.server import HttpConnection as HttpConnection
from mcp_workbench.transport.http.server import Port as Port
