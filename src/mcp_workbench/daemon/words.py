# shim: mcp_workbench.daemon.words -> mcp_workbench.daemon.control_protocol
from mcp_workbench.daemon.control_protocol import DOWN as DOWN
from mcp_workbench.daemon.control_protocol import FORMAT as FORMAT
from mcp_workbench.daemon.control_protocol import JOIN as JOIN
from mcp_workbench.daemon.control_protocol import REPORT as REPORT
from mcp_workbench.daemon.control_protocol import STATUS as STATUS
from mcp_workbench.daemon.control_protocol import WELCOME as WELCOME
from mcp_workbench.daemon.control_protocol import pack as packed
