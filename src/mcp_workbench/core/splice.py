# shim: mcp_workbench.core.splice -> mcp_workbench.core.raw_json
from mcp_workbench.core.raw_json import changed as changed
from mcp_workbench.core.raw_json import checked as checked
from mcp_workbench.core.raw_json import each as each
