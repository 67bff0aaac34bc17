# shim: mcp_workbench.gateway.search -> mcp_workbench.gateway.tool_search
# ruff: noqa
# fmt: off
from mcp_workbench.gateway.tool_search import Finder as Finder, find as find, known_tools as known_tools
