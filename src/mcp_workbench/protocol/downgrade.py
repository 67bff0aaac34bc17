# shim: mcp_workbench.protocol.downgrade -> mcp_workbench.protocol.translation
# ruff: noqa
# fmt: off
from mcp_workbench.protocol.translation import legacy_definition as legacy_definition, legacy_result as legacy_result
