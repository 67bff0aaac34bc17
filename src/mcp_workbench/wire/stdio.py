# shim: mcp_workbench.wire.stdio -> mcp_workbench.transport.stdio
from mcp_workbench.transport.stdio import AT_ONCE as AT_ONCE
from mcp_workbench.transport.stdio import F_SETPIPE_SZ as F_SETPIPE_SZ
from mcp_workbench.transport.stdio import JOIN_BYTES as JOIN_BYTES
from mcp_workbench.transport.stdio import PART_BYTES as PART_BYTES
from mcp_workbench.transport.stdio import PIPE_BYTES as PIPE_BYTES
from mcp_workbench.transport.stdio import PRESSURE_BYTES as PRESSURE_BYTES
from mcp_workbench.transport.stdio import READ_BYTES as READ_BYTES
from mcp_workbench.transport.stdio import STEP as STEP
from mcp_workbench.transport.stdio import Channel as Channel
from mcp_workbench.transport.stdio import PipeReader as PipeReader
from mcp_workbench.transport.stdio import PipeWriter as PipeWriter
from mcp_workbench.transport.stdio import grow_pipe as grow_pipe
from mcp_workbench.transport.stdio import join_writes as join_writes
