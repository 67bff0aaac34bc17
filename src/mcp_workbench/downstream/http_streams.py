# shim: mcp_workbench.downstream.http_streams -> mcp_workbench.upstream.http.streams
from mcp_workbench.upstream.http.streams import CONNECTS as CONNECTS, Pace as Pace, SOONEST as SOONEST
