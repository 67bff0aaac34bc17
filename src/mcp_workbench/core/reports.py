# shim: mcp_workbench.core.reports -> mcp_workbench.core.catalogue
from mcp_workbench.core.catalogue import OpenedServer as OpenedServer
from mcp_workbench.core.catalogue import OpenedToolbox as OpenedToolbox
from mcp_workbench.core.catalogue import ServerHealth as ServerHealth
from mcp_workbench.core.catalogue import ServerReport as ServerReport
from mcp_workbench.core.catalogue import ToolChange as ToolChange
from mcp_workbench.core.catalogue import toolbox_result as for_programs
