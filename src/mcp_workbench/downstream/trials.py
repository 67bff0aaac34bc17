# shim: mcp_workbench.downstream.trials -> mcp_workbench.upstream.backoff
from mcp_workbench.upstream.backoff import Backoff as Trials, PATIENCE as PATIENCE, pause_after as pause_after
