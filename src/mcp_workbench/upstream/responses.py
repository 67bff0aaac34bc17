# shim: mcp_workbench.upstream.responses -> mcp_workbench.upstream.conversation
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.conversation import Failure as Failure, RequestFailed as RequestFailed, ResponseHandler as ResponseHandler
