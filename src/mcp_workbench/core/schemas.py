# shim: mcp_workbench.core.schemas -> mcp_workbench.schema.document
from mcp_workbench.schema.document import json_text as json_text
