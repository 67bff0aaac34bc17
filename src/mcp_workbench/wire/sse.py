# shim: mcp_workbench.wire.sse -> mcp_workbench.transport.http.sse
from mcp_workbench.transport.http.sse import BOM as BOM
from mcp_workbench.transport.http.sse import FIELD_BYTES as FIELD_BYTES
from mcp_workbench.transport.http.sse import LINES as LINES
from mcp_workbench.transport.http.sse import NAME_BYTES as NAME_BYTES
from mcp_workbench.transport.http.sse import Event as Event
from mcp_workbench.transport.http.sse import EventReader as EventReader
from mcp_workbench.transport.http.sse import EventTooLarge as EventTooLarge
