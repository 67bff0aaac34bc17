# shim: mcp_workbench.upstream.backoff -> mcp_workbench.upstream.health
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.health import FIRST_PAUSE as FIRST_PAUSE, OPEN_AFTER as OPEN_AFTER, PATIENCE as PATIENCE, Backoff as Backoff, pause_after as pause_after
