# shim: mcp_workbench.wire.pending -> mcp_workbench.transport.jsonrpc
from mcp_workbench.transport.jsonrpc import NEVER as NEVER
from mcp_workbench.transport.jsonrpc import PendingRequests as PendingTable
