# shim: mcp_workbench.search.fields -> mcp_workbench.search.words
from mcp_workbench.search.words import DEEPEST as DEEPEST
from mcp_workbench.search.words import LINES as LINES
from mcp_workbench.search.words import MOST_READ as MOST_READ
from mcp_workbench.search.words import MOST_TEXT as MOST_TEXT
from mcp_workbench.search.words import NAMES as NAMES
from mcp_workbench.search.words import OF_TOOL as OF_TOOL
from mcp_workbench.search.words import WEIGHTS as WEIGHTS
from mcp_workbench.search.words import Counts as Counts
from mcp_workbench.search.words import FieldCounts as Counted
from mcp_workbench.search.words import Json as Json
from mcp_workbench.search.words import Places as Places
from mcp_workbench.search.words import ServerDescription as About
from mcp_workbench.search.words import server_counts as server_counts
from mcp_workbench.search.words import tool_counts as tool_counts
