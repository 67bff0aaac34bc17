# shim: mcp_workbench.wire.own_streams -> mcp_workbench.transport.stdio
from mcp_workbench.transport.stdio import FileWriter as FileWriter
from mcp_workbench.transport.stdio import claim_standard_streams as claim_standard_streams
from mcp_workbench.transport.stdio import is_pipe as is_pipe
from mcp_workbench.transport.stdio import open_writer as open_writer
from mcp_workbench.transport.stdio import pump_file as pump_file
