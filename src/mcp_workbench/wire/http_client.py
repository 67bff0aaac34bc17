# shim: mcp_workbench.wire.http_client -> mcp_workbench.transport.http.client
from mcp_workbench.transport.http.client import BUNDLES as BUNDLES
from mcp_workbench.transport.http.client import CONNECT as CONNECT
from mcp_workbench.transport.http.client import KEPT as KEPT
from mcp_workbench.transport.http.client import MOST as MOST
from mcp_workbench.transport.http.client import SPARE as SPARE
from mcp_workbench.transport.http.client import HttpClient as HttpClient
