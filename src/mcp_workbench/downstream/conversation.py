# shim: mcp_workbench.downstream.conversation -> mcp_workbench.upstream.conversation
from mcp_workbench.upstream.conversation import Conversation as Conversation
