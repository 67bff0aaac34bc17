# shim: mcp_workbench.era.older -> mcp_workbench.protocol.downgrade
from mcp_workbench.protocol.downgrade import BRACE as BRACE
from mcp_workbench.protocol.downgrade import MOST_BLOCKS as MOST_BLOCKS
from mcp_workbench.protocol.downgrade import encode as encode
from mcp_workbench.protocol.downgrade import legacy_definition as legacy_definition
from mcp_workbench.protocol.downgrade import legacy_result as legacy_result
