# shim: mcp_workbench.wire.http_reading -> mcp_workbench.transport.http.reading
from mcp_workbench.transport.http.reading import BODY_TIME as BODY_TIME
from mcp_workbench.transport.http.reading import FRAMING as FRAMING
from mcp_workbench.transport.http.reading import HEAD_BYTES as HEAD_BYTES
from mcp_workbench.transport.http.reading import HEAD_LINES as HEAD_LINES
from mcp_workbench.transport.http.reading import HEAD_TIME as HEAD_TIME
from mcp_workbench.transport.http.reading import NEVER as NEVER
from mcp_workbench.transport.http.reading import OUR_FAULT as OUR_FAULT
from mcp_workbench.transport.http.reading import PACE as PACE
from mcp_workbench.transport.http.reading import PIECE as PIECE
from mcp_workbench.transport.http.reading import SMALL_BODY as SMALL_BODY
from mcp_workbench.transport.http.reading import Front as Front
from mcp_workbench.transport.http.reading import ReaderLimits as Limits
from mcp_workbench.transport.http.reading import RequestReader as RequestReader
