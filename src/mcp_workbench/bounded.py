# shim: mcp_workbench.bounded -> mcp_workbench.core.raw_json
from mcp_workbench.core.raw_json import Inside as Inside
from mcp_workbench.core.raw_json import MOST_ELEMENTS as MOST_ELEMENTS
from mcp_workbench.core.raw_json import Members as Members
from mcp_workbench.core.raw_json import TooManyParts as TooManyParts
from mcp_workbench.core.raw_json import check_elements as check_elements
from mcp_workbench.core.raw_json import has_few_members as has_few_members
from mcp_workbench.core.raw_json import read_elements as read_elements
from mcp_workbench.core.raw_json import read_members as read_members
