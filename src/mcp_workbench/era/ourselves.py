# shim: mcp_workbench.era.ourselves -> mcp_workbench.protocol.handshake
from mcp_workbench.protocol.handshake import IMPLEMENTATION as OURSELVES
from mcp_workbench.protocol.handshake import STAMPS as STAMPS
