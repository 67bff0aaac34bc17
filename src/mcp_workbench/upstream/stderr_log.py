# shim: mcp_workbench.upstream.stderr_log -> mcp_workbench.upstream.dial
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.dial import HELD_BYTES as HELD_BYTES, LINES as LINES, LONGEST as LONGEST, WINDOW as WINDOW, StderrLog as StderrLog
