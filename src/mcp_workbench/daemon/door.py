# shim: mcp_workbench.daemon.door -> mcp_workbench.daemon.control_client
from mcp_workbench.daemon.control_client import NoAnswer as NoAnswer
from mcp_workbench.daemon.control_client import connect as knock
from mcp_workbench.daemon.control_client import peer_credentials as peer_of
from mcp_workbench.daemon.control_client import request as ask
