# shim: mcp_workbench.era.primitives -> mcp_workbench.protocol.primitives
from mcp_workbench.protocol.primitives import INVALID_PARAMS as INVALID_PARAMS
from mcp_workbench.protocol.primitives import LEVELS as LEVELS
from mcp_workbench.protocol.primitives import RESOURCE_NOT_FOUND as RESOURCE_NOT_FOUND
from mcp_workbench.protocol.primitives import level_in as level_in
from mcp_workbench.protocol.primitives import level_of as level_of
from mcp_workbench.protocol.primitives import most_verbose as most_verbose
from mcp_workbench.protocol.primitives import not_found_code as not_found_code
from mcp_workbench.protocol.primitives import reaches as reaches
from mcp_workbench.protocol.primitives import read_error_for as read_error_for
from mcp_workbench.protocol.primitives import read_level as read_level
from mcp_workbench.protocol.primitives import request_params as request_params
from mcp_workbench.protocol.primitives import subscription_of as subscription_of
from mcp_workbench.protocol.primitives import tagged as tagged
from mcp_workbench.protocol.primitives import untagged as untagged
from mcp_workbench.protocol.primitives import with_cache as with_cache
