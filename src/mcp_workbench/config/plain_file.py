# shim: mcp_workbench.config.plain_file -> mcp_workbench.config.file_access
from mcp_workbench.config.file_access import NotPlain as NotPlain
from mcp_workbench.config.file_access import PIPE_WAIT as PIPE_WAIT
from mcp_workbench.config.file_access import TooLarge as TooLarge
from mcp_workbench.config.file_access import TooSlow as TooSlow
from mcp_workbench.config.file_access import read_plain as read_plain
