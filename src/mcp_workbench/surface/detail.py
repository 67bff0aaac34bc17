# shim: mcp_workbench.surface.detail -> mcp_workbench.server.tool_text
from mcp_workbench.server.tool_text import full_text as full_form, opened_text as opened_in_words, signature_line as signature_line, tool_lines as listed
