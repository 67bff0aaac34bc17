# shim: mcp_workbench.wire.addresses -> mcp_workbench.transport.http.urls
from mcp_workbench.transport.http.urls import DEFAULT_PORTS as DEFAULT_PORTS
from mcp_workbench.transport.http.urls import BadUrl as BadAddress
from mcp_workbench.transport.http.urls import Url as Address
from mcp_workbench.transport.http.urls import is_loopback as is_loopback
from mcp_workbench.transport.http.urls import parse_url as read_address
from mcp_workbench.transport.http.urls import proxy_for as proxy_for
