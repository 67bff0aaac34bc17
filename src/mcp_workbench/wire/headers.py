# shim: mcp_workbench.wire.headers -> mcp_workbench.transport.http.messages
from mcp_workbench.transport.http.messages import decode_value as decode_value
from mcp_workbench.transport.http.messages import encode_value as encode_value
