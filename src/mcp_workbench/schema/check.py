# shim: mcp_workbench.schema.check -> mcp_workbench.schema.mismatches
# ruff: noqa
# fmt: off
from mcp_workbench.schema.mismatches import Mismatch as Mismatch, Path as Path, allowed_values as allowed_values, explain as explain, is_closed as is_closed, mismatches as mismatches
