# shim: mcp_workbench.wire.http_wire -> mcp_workbench.transport.http.client
from mcp_workbench.transport.http.client import FRAMING as FRAMING
from mcp_workbench.transport.http.client import HEAD_BYTES as HEAD_BYTES
from mcp_workbench.transport.http.client import HEAD_LINES as HEAD_LINES
from mcp_workbench.transport.http.client import INTERIM as INTERIM
from mcp_workbench.transport.http.client import JOINED as JOINED
from mcp_workbench.transport.http.client import MARGIN as MARGIN
from mcp_workbench.transport.http.client import PIECE as PIECE
from mcp_workbench.transport.http.client import BadResponse as Unfit
from mcp_workbench.transport.http.client import ClientConnection as Wire
from mcp_workbench.transport.http.client import ConnectionPool as Keeper
