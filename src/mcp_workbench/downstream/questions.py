# shim: mcp_workbench.downstream.questions -> mcp_workbench.upstream.server_requests
from mcp_workbench.upstream.server_requests import MINUTE as MINUTE, ServerRequests as OpenQuestions
