# shim: mcp_workbench.surface.texts -> mcp_workbench.server.text
from mcp_workbench.server.text import CODE_KEY as CODE_KEY, error_texts as error_texts, instructions as instructions
