# shim: mcp_workbench.core.tokens -> mcp_workbench.core.token_estimate
from mcp_workbench.core.token_estimate import estimate_tokens as tokens
