# shim: mcp_workbench.core.inputs -> mcp_workbench.core.call
from mcp_workbench.core.call import OpenToolboxInput as OpenToolboxInput
from mcp_workbench.core.call import UseToolInput as UseToolInput
