# shim: mcp_workbench.upstream.http.exchange -> mcp_workbench.upstream.http.responses
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.http.responses import Exchange as Exchange
from mcp_workbench.upstream.http.requests import OutgoingRequest as OutgoingRequest
