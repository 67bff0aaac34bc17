# shim: mcp_workbench.downstream.last_words -> mcp_workbench.upstream.exit_reason
from mcp_workbench.upstream.exit_reason import exit_reason as last_words
