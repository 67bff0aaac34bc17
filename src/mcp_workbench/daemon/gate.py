# shim: mcp_workbench.daemon.gate -> mcp_workbench.daemon.control_server
from mcp_workbench.daemon.control_server import ControlConnection as Visitor
