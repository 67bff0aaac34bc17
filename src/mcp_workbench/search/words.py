# shim: mcp_workbench.search.words -> mcp_workbench.search.queries
# ruff: noqa
# fmt: off
from mcp_workbench.search.queries import FieldCounts as FieldCounts, ServerDescription as ServerDescription, Words as Words, parts as parts, server_counts as server_counts, tool_counts as tool_counts
