# shim: mcp_workbench.core.token_estimate -> mcp_workbench.core.catalogue
# ruff: noqa
# fmt: off
from mcp_workbench.core.catalogue import estimate_tokens as estimate_tokens
