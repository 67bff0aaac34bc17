# shim: mcp_workbench.config.state_folder -> mcp_workbench.config.state_home
from mcp_workbench.config.state_home import VARIABLE as VARIABLE
from mcp_workbench.config.state_home import private_folder as private_folder
from mcp_workbench.config.state_home import read_own as read_own
from mcp_workbench.config.state_home import require_private as require_private
from mcp_workbench.config.state_home import state_home as state_home
from mcp_workbench.config.state_home import write_whole as write_whole
