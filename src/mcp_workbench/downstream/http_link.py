# shim: mcp_workbench.downstream.http_link -> mcp_workbench.upstream.http.link
from mcp_workbench.upstream.http.link import MOST_REPLIES as MOST_REPLIES
