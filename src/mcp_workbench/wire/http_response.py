# shim: mcp_workbench.wire.http_response -> mcp_workbench.transport.http.messages
from mcp_workbench.transport.http.messages import BACKLOG_BYTES as BACKLOG_BYTES
from mcp_workbench.transport.http.messages import ResponseConnection as Carrier
from mcp_workbench.transport.http.messages import ResponseWriter as Response
