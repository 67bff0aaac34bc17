# shim: mcp_workbench.downstream.overheard -> mcp_workbench.upstream.stderr_log
from mcp_workbench.upstream.stderr_log import HELD_BYTES as HELD_BYTES, LINES as LINES, StderrLog as Overheard, WINDOW as WINDOW
