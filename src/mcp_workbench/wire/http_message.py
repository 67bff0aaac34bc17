# shim: mcp_workbench.wire.http_message -> mcp_workbench.transport.http.messages
from mcp_workbench.transport.http.messages import CONTINUE as CONTINUE
from mcp_workbench.transport.http.messages import HEAD_LINES as HEAD_LINES
from mcp_workbench.transport.http.messages import JSON as JSON
from mcp_workbench.transport.http.messages import LAST_CHUNK as LAST_CHUNK
from mcp_workbench.transport.http.messages import SMALL as SMALL
from mcp_workbench.transport.http.messages import STATUS_LINES as STATUS_LINES
from mcp_workbench.transport.http.messages import TEXT as TEXT
from mcp_workbench.transport.http.messages import HttpRequest as Request
from mcp_workbench.transport.http.messages import Pieces as Pieces
from mcp_workbench.transport.http.messages import Reply as Reply
from mcp_workbench.transport.http.messages import add_piece as add_piece
from mcp_workbench.transport.http.messages import chunk as chunk
from mcp_workbench.transport.http.messages import plain_head as plain_head
from mcp_workbench.transport.http.messages import stream_head as stream_head

# shim: mcp_workbench.wire.http_message -> mcp_workbench.transport.http.sse
from mcp_workbench.transport.http.sse import COMMENT as COMMENT
from mcp_workbench.transport.http.sse import event as event
