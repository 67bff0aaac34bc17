# shim: mcp_workbench.gateway.argument_hints -> mcp_workbench.gateway.arguments
# ruff: noqa
# fmt: off
from mcp_workbench.gateway.arguments import UNEXPLAINED as UNEXPLAINED, error_with_hint as error_with_hint, has_failed as has_failed, hint_for as hint_for, misfit as misfit, result_with_hint as result_with_hint
