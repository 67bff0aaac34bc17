# shim: mcp_workbench.era.declared -> mcp_workbench.protocol.handshake
from mcp_workbench.protocol.handshake import ServerCapabilities as Declared
from mcp_workbench.protocol.handshake import read_capabilities as read_declared
