# shim: mcp_workbench.upstream.http.streams -> mcp_workbench.upstream.http.event_streams
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.http.event_streams import CONNECTS as CONNECTS, SOONEST as SOONEST, Pace as Pace
