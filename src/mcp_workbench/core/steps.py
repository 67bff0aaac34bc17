# shim: mcp_workbench.core.steps -> mcp_workbench.core.raw_json
from mcp_workbench.core.raw_json import Steps as Steps
from mcp_workbench.core.raw_json import TOO_COMPLEX as TOO_COMPLEX
from mcp_workbench.core.raw_json import TooComplex as TooComplex
