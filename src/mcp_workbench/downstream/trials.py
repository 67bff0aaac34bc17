# shim: mcp_workbench.downstream.trials -> mcp_workbench.upstream.backoff
from mcp_workbench.upstream.backoff import PATIENCE as PATIENCE, Trials as Trials, pause_after as pause_after
