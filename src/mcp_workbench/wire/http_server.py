# shim: mcp_workbench.wire.http_server -> mcp_workbench.transport.http.server
from mcp_workbench.transport.http.server import BODIES as BODIES
from mcp_workbench.transport.http.server import CONNECTIONS as CONNECTIONS
from mcp_workbench.transport.http.server import NEW as NEW
from mcp_workbench.transport.http.server import STRANGERS as STRANGERS
from mcp_workbench.transport.http.server import TICK as TICK
from mcp_workbench.transport.http.server import HttpServer as HttpServer
from mcp_workbench.transport.http.server import NotListening as NotListening
from mcp_workbench.transport.http.server import listening as listening
from mcp_workbench.transport.http.server import most_connections as most_connections
